package raw

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/delaygate/delaygate/codec"
)

// callTimeout bounds a call whose context has no deadline.
const callTimeout = 15 * time.Second

// clientVersion is the ordinal that a Java client 4.9.7 reports: one that gets strict JSON routes.
const clientVersion = 407

// Conn is one connection with any number of unanswered requests. Its methods may be called from any
// goroutine.
type Conn struct {
	c net.Conn

	write sync.Mutex
	buf   []byte

	mu      sync.Mutex
	opaque  int32
	waiting map[int32]func(*codec.Command, error)
	err     error
}

// Dial connects to addr.
func Dial(ctx context.Context, addr string) (*Conn, error) {
	d := net.Dialer{Timeout: 5 * time.Second}
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	conn := &Conn{c: c, waiting: map[int32]func(*codec.Command, error){}}
	go conn.read()
	return conn, nil
}

// Close ends the connection; unanswered requests fail.
func (c *Conn) Close() { c.c.Close() }

// Start sends a request and returns; done is called once, from the reading goroutine or, when the
// connection is broken already, from the caller's. It sets the command's opaque.
func (c *Conn) Start(cmd *codec.Command, done func(*codec.Command, error)) {
	c.mu.Lock()
	if c.err != nil {
		err := c.err
		c.mu.Unlock()
		done(nil, err)
		return
	}
	c.opaque++
	cmd.Opaque = c.opaque
	c.waiting[cmd.Opaque] = done
	c.mu.Unlock()
	if err := c.put(cmd); err != nil {
		c.fail(err)
	}
}

func (c *Conn) put(cmd *codec.Command) error {
	c.write.Lock()
	defer c.write.Unlock()
	frame, err := cmd.Append(c.buf[:0])
	if err != nil {
		return fmt.Errorf("encode request %d: %w", cmd.Code, err)
	}
	c.buf = frame
	_, err = c.c.Write(frame)
	return err
}

// Call sends a request and waits for its answer, whatever its code.
func (c *Conn) Call(ctx context.Context, cmd *codec.Command) (*codec.Command, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	type outcome struct {
		cmd *codec.Command
		err error
	}
	done := make(chan outcome, 1)
	c.Start(cmd, func(reply *codec.Command, err error) { done <- outcome{reply, err} })
	select {
	case o := <-done:
		return o.cmd, o.err
	case <-ctx.Done():
		return nil, fmt.Errorf("request %d to %s: %w", cmd.Code, c.c.RemoteAddr(), ctx.Err())
	}
}

func (c *Conn) read() {
	r := bufio.NewReaderSize(c.c, 256<<10)
	for {
		frame, err := ReadFrame(r)
		if err != nil {
			c.fail(err)
			return
		}
		reply, err := codec.Decode(frame)
		if err != nil {
			c.fail(fmt.Errorf("reply of %s: %w", c.c.RemoteAddr(), err))
			return
		}
		if reply.Flag&codec.FlagResponse == 0 {
			continue // a broker's own request; nothing here needs one
		}
		c.mu.Lock()
		done := c.waiting[reply.Opaque]
		delete(c.waiting, reply.Opaque)
		c.mu.Unlock()
		if done != nil {
			done(reply, nil)
		}
	}
}

// ReadFrame reads one frame, length word included.
func ReadFrame(r io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > codec.MaxFrame {
		return nil, fmt.Errorf("frame of %d bytes", n)
	}
	frame := make([]byte, 4+n)
	copy(frame, head[:])
	_, err := io.ReadFull(r, frame[4:])
	return frame, err
}

func (c *Conn) fail(err error) {
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("connection closed by %s: %w", c.c.RemoteAddr(), err)
	}
	c.c.Close()
	c.mu.Lock()
	if c.err == nil {
		c.err = err
	}
	rest := c.waiting
	c.waiting = map[int32]func(*codec.Command, error){}
	c.mu.Unlock()
	for _, done := range rest {
		done(nil, err)
	}
}

// Once opens a connection for one call.
func Once(ctx context.Context, addr string, cmd *codec.Command) (*codec.Command, error) {
	c, err := Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Call(ctx, cmd)
}

// Request builds a request in a JSON header from pairs of field name and value.
func Request(code int32, pairs ...string) *codec.Command {
	cmd := &codec.Command{Serialize: codec.JSON, Code: code, Language: codec.LangJava, Version: clientVersion}
	for i := 0; i+1 < len(pairs); i += 2 {
		cmd.Fields = append(cmd.Fields, codec.Field{Name: pairs[i], Value: pairs[i+1]})
	}
	return cmd
}

// ReplyError is an answer with another code than success.
type ReplyError struct {
	Code   int32
	Remark string
}

func (e *ReplyError) Error() string { return fmt.Sprintf("code %d: %s", e.Code, e.Remark) }

// Checked turns an answer that is not success into a *ReplyError.
func Checked(reply *codec.Command, err error) (*codec.Command, error) {
	if err != nil {
		return nil, err
	}
	if reply.Code != 0 {
		return nil, &ReplyError{Code: reply.Code, Remark: reply.Remark}
	}
	return reply, nil
}
