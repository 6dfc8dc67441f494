package raw

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/delaygate/delaygate/codec"
)

// Answers to a pull.
const (
	pullNotFound  = 19
	pullRetry     = 20
	pullMoved     = 21
	pullMaxNumber = 2000
)

// Reader reads all messages of a topic on one broker, in the order of each queue, without a group.
type Reader struct {
	addr    string
	topic   string
	offsets []int64
	conn    *Conn
}

// NewReader reads from the first message of each of the topic's queues.
func NewReader(addr, topic string, queues int) *Reader {
	return &Reader{addr: addr, topic: topic, offsets: make([]int64, queues)}
}

// Close closes the connection.
func (r *Reader) Close() {
	if r.conn != nil {
		r.conn.Close()
	}
}

// Poll hands over what has come since the last call and returns how many messages that were.
func (r *Reader) Poll(ctx context.Context, each func(m *codec.StoredMessage)) (int, error) {
	total := 0
	for q := range r.offsets {
		for {
			n, err := r.pull(ctx, q, each)
			if err != nil {
				r.Close()
				r.conn = nil
				return total, fmt.Errorf("read %s queue %d of %s: %w", r.topic, q, r.addr, err)
			}
			if total += n; n == 0 {
				break
			}
		}
	}
	return total, nil
}

// Until polls until done returns true. A broker that cannot be reached is asked again.
func (r *Reader) Until(ctx context.Context, done func() bool, each func(m *codec.StoredMessage)) error {
	for {
		_, err := r.Poll(ctx, each)
		if done() {
			return nil
		}
		select {
		case <-ctx.Done():
			if err == nil {
				err = ctx.Err()
			}
			return err
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (r *Reader) pull(ctx context.Context, queue int, each func(m *codec.StoredMessage)) (int, error) {
	if r.conn == nil {
		conn, err := Dial(ctx, r.addr)
		if err != nil {
			return 0, err
		}
		r.conn = conn
	}
	const withSubscription = "4"
	reply, err := r.conn.Call(ctx, Request(codePull, "consumerGroup", "compat-reader", "topic", r.topic,
		"queueId", strconv.Itoa(queue), "queueOffset", strconv.FormatInt(r.offsets[queue], 10),
		"maxMsgNums", strconv.Itoa(pullMaxNumber), "sysFlag", withSubscription, "commitOffset", "0",
		"suspendTimeoutMillis", "0", "subscription", "*", "subVersion", "0", "expressionType", "TAG"))
	if err != nil {
		return 0, err
	}
	switch reply.Code {
	case 0:
	case pullNotFound, pullRetry, pullMoved:
		return 0, nil
	default:
		return 0, &ReplyError{Code: reply.Code, Remark: reply.Remark}
	}
	n := 0
	for b := reply.Body; len(b) > 0; n++ {
		m, size, err := codec.DecodeStored(b)
		if err != nil {
			return n, err
		}
		r.offsets[queue] = m.QueueOffset + 1
		each(&m)
		b = b[size:]
	}
	return n, nil
}
