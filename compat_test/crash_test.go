package compat_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/delaygate/delaygate/compat_test/proxy"
	"github.com/delaygate/delaygate/compat_test/raw"
)

func TestNothingAcknowledgedIsLostByKills(t *testing.T) {
	t.Parallel()
	p := must(suite.startProxy("5.5.0", "killed"))(t)
	f := crashFlood(t, p, "5.5.0", "kill", 300)
	now := time.Now().UnixMilli()
	for i := range 100_000 {
		f.add(now+45_000+int64(i)/4, 1)
	}
	sendThroughKill(t, p, f)
	// Once more while they are being delivered.
	time.Sleep(time.Until(time.UnixMilli(now + 55_000)))
	p.Kill()
	comeBack(t, p)
	f.await(t)
	f.check(t, atLeast)
	t.Logf("lateness %v", f.lateness())
}

func TestSealedSegmentsDeliverAfterAKill(t *testing.T) {
	t.Parallel()
	p := must(suite.startProxy("4.9.7", "sealing", "DELAYGATE_STORE_SEGMENT_BYTES=1048576", "DELAYGATE_STORE_HORIZON=2s"))(t)
	f := crashFlood(t, p, "4.9.7", "seal", 1000)
	now := time.Now().UnixMilli()
	for i := range 100_000 {
		// spread over what is left of three minutes, in no order of arrival
		f.add(now+5_000+int64(i)*7919%175_000, 1)
	}
	seals := sendThroughKill(t, p, f)
	f.await(t)
	f.check(t, atLeast)
	seals += metric(t, p, sealsTotal)
	if seals < 50 {
		t.Errorf("%v seals, want at least 50", seals)
	}
	runs, log := metric(t, p, `delaygate_store_loads_total{place="run"}`), metric(t, p, `delaygate_store_loads_total{place="log"}`)
	if runs <= log {
		t.Errorf("%v bodies were read from runs, %v from the log: most were to come from runs", runs, log)
	}
	t.Logf("%v seals, %v bodies read from runs and %v from the log, lateness %v", seals, runs, log, f.lateness())
}

func crashFlood(t *testing.T, p *proxy.Proxy, version, name string, body int) *flood {
	t.Helper()
	const queues = 8
	c := must(suite.clusters[version]())(t)
	if err := createTopic(t.Context(), c, brokerA, "crash-"+name, queues); err != nil {
		t.Fatal(err)
	}
	addr := must(raw.MasterAddr(t.Context(), p.NameServer, brokerA))(t)
	f := &flood{
		addr: addr, topic: "crash-" + name, queues: queues, prefix: "C" + name, body: make([]byte, body),
		reader: raw.NewReader(c.Broker(brokerA).Addr, "crash-"+name, queues),
	}
	t.Cleanup(f.reader.Close)
	return f
}

// sendThroughKill sends all of a flood; in the middle the proxy is killed and started again on its folder. It
// returns how many segments had been sealed by then.
func sendThroughKill(t *testing.T, p *proxy.Proxy, f *flood) (seals float64) {
	t.Helper()
	killed := false
	half := len(f.due) / 2
	start := time.Now()
	err := f.sendOpen(t.Context(), 512, func(acked int) {
		if acked >= half && !killed {
			killed = true
			seals = metric(t, p, sealsTotal)
			p.Kill()
		}
	})
	if !killed {
		t.Fatalf("the flood ended before the kill: %v; the proxy's log:\n%s", err, p.Log())
	}
	var refused *raw.ReplyError
	if errors.As(err, &refused) {
		t.Fatalf("a send was refused: %v", err)
	}
	before := len(f.due) - len(f.open())
	comeBack(t, p)
	if err := f.sendOpen(t.Context(), 512, nil); err != nil {
		t.Fatalf("after the restart: %v; the proxy's log:\n%s", err, p.Log())
	}
	t.Logf("%d messages accepted in %v, %d of them before the kill", len(f.due), time.Since(start).Round(time.Millisecond), before)
	return seals
}

// sealsTotal counts the segments sealed since the process started.
const sealsTotal = "delaygate_store_seals_total"

// metric reads a counter of the proxy: the sum over its labels, or the one whose labels are named.
func metric(t *testing.T, p *proxy.Proxy, name string) float64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return must(p.Metric(ctx, name))(t)
}
