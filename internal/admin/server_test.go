package admin_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/delaygate/delaygate/internal/admin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, ready func() error) string {
	t.Helper()
	reg := prometheus.NewRegistry()
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "delaygate_test", Help: "A test."})
	reg.MustRegister(g)
	s, err := admin.Start(admin.Options{
		Addr:    "127.0.0.1:0",
		Ready:   []admin.Check{{Name: "routes", Err: ready}},
		Metrics: reg,
		Log:     slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s.Addr()
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

func TestReadyFollowsTheChecksAndHealthDoesNot(t *testing.T) {
	var ok atomic.Bool
	addr := start(t, func() error {
		if ok.Load() {
			return nil
		}
		return errors.New("no name server has answered")
	})
	if code, body := get(t, "http://"+addr+"/readyz"); code != 503 || !strings.Contains(body, "routes: no name server has answered") {
		t.Errorf("readyz before: %d %q", code, body)
	}
	if code, _ := get(t, "http://"+addr+"/healthz"); code != 200 {
		t.Errorf("healthz before: %d", code)
	}
	ok.Store(true)
	if code, _ := get(t, "http://"+addr+"/readyz"); code != 200 {
		t.Errorf("readyz after: %d", code)
	}
}

func TestMetricsAreServed(t *testing.T) {
	addr := start(t, func() error { return nil })
	if code, body := get(t, "http://"+addr+"/metrics"); code != 200 || !strings.Contains(body, "delaygate_test 0") {
		t.Errorf("metrics: %d %q", code, body)
	}
}

func TestTakenPortIsAnError(t *testing.T) {
	addr := start(t, func() error { return nil })
	_, err := admin.Start(admin.Options{Addr: addr, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), addr) {
		t.Fatalf("got %v", err)
	}
}
