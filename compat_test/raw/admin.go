package raw

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/delaygate/delaygate/codec"
)

// Request codes of RocketMQ 4.x and 5.x that the suites use.
const (
	codePull         = 11
	codeCreateTopic  = 17
	codeBrokerConfig = 26
	codeMaxOffset    = 30
	CodeHeartbeat    = 34
	CodeRoute        = 105
	CodeClusterInfo  = 106
	codeSendV2       = 310
)

// Permissions of a topic.
const PermReadWrite = 6

// ClusterInfo asks a name server for all brokers.
func ClusterInfo(ctx context.Context, ns string) (*codec.ClusterInfo, error) {
	reply, err := Checked(Once(ctx, ns, Request(CodeClusterInfo)))
	if err != nil {
		return nil, err
	}
	return codec.ParseClusterInfo(reply.Body)
}

// Route asks a name server for a topic's route.
func Route(ctx context.Context, ns, topic string) (*codec.Route, error) {
	reply, err := Checked(Once(ctx, ns, Request(CodeRoute, "topic", topic)))
	if err != nil {
		return nil, err
	}
	return codec.ParseRoute(reply.Body)
}

// MasterAddr asks a name server, or a proxy, where the master of a broker is.
func MasterAddr(ctx context.Context, ns, broker string) (string, error) {
	info, err := ClusterInfo(ctx, ns)
	if err != nil {
		return "", err
	}
	addr, ok := info.Brokers[broker].BrokerAddrs[0]
	if !ok {
		return "", fmt.Errorf("%s lists no master of %s", ns, broker)
	}
	return addr, nil
}

// Ping checks that a broker answers.
func Ping(ctx context.Context, broker string) error {
	_, err := Checked(Once(ctx, broker, Request(codeBrokerConfig)))
	return err
}

// CreateTopic creates a topic on one broker and waits until the name server knows it there.
func CreateTopic(ctx context.Context, ns, broker, topic string, queues int) error {
	addr, err := MasterAddr(ctx, ns, broker)
	if err != nil {
		return err
	}
	n := strconv.Itoa(queues)
	_, err = Checked(Once(ctx, addr, Request(codeCreateTopic, "topic", topic, "defaultTopic", "TBW102",
		"readQueueNums", n, "writeQueueNums", n, "perm", strconv.Itoa(PermReadWrite),
		"topicFilterType", "SINGLE_TAG", "topicSysFlag", "0", "order", "false")))
	if err != nil {
		return fmt.Errorf("create topic %s on %s: %w", topic, broker, err)
	}
	return waitRoute(ctx, ns, broker, topic)
}

func waitRoute(ctx context.Context, ns, broker, topic string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		r, err := Route(ctx, ns, topic)
		if err == nil {
			for _, q := range r.Queues {
				if q.BrokerName == broker {
					return nil
				}
			}
			err = errors.New("the route does not name it")
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("topic %s on %s: %w", topic, broker, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
