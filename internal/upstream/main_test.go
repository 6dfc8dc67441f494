package upstream_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/internal/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// logBuffer keeps what was logged.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *logBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func newClient(t *testing.T, o upstream.Options) *upstream.Client {
	t.Helper()
	c := upstream.NewClient(o)
	t.Cleanup(c.Close)
	return c
}

func request(code int32, body string) *codec.Command {
	return &codec.Command{Code: code, Language: codec.LangGo, Version: 401, Fields: codec.Fields{{Name: "k", Value: "v"}}, Body: []byte(body)}
}

// binaryFrame is a frame as deliveries are.
func binaryFrame(t testing.TB, body string) []byte {
	t.Helper()
	c := request(codec.ReqSendMessageV2, body)
	c.Serialize = codec.Binary
	b, err := c.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for range 1000 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("never happened: " + what)
}

func wantError(t testing.TB, err error, want ...error) {
	t.Helper()
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Errorf("error %v is not %v", err, w)
		}
	}
	if errors.Is(err, upstream.ErrNotSent) == errors.Is(err, upstream.ErrUnknownOutcome) {
		t.Errorf("error %v must be exactly one of not sent and outcome unknown", err)
	}
}

type result struct {
	reply *codec.Command
	err   error
}

// send is Client.Send with a channel.
func send(c *upstream.Client, addr string, frame []byte, timeout time.Duration) chan result {
	ch := make(chan result, 2) // a second call of done would be seen
	c.Send(addr, frame, timeout, func(r *codec.Command, err error) { ch <- result{r, err} })
	return ch
}
