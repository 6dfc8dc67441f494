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
	f := crashFlood(t, p, "4.9.7", "seal", 400)
	now := time.Now().UnixMilli()
	for i := range 100_000 {
		// spread over what is left of three minutes, in no order of arrival
		f.add(now+5_000+int64(i)*7919%175_000, 1)
	}
	sendThroughKill(t, p, f)
	seals := sealCount(t, p)
	f.await(t)
	f.check(t, atLeast)
	if seals < 50 {
		t.Errorf("%v seals since the restart, want at least 50 in all", seals)
	}
	t.Logf("%v seals when all was accepted, lateness %v", seals, f.lateness())
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

// sendThroughKill sends all of a flood; in the middle the proxy is killed and started again on its folder.
func sendThroughKill(t *testing.T, p *proxy.Proxy, f *flood) {
	t.Helper()
	killed := false
	half := len(f.due) / 2
	start := time.Now()
	err := f.sendOpen(t.Context(), 512, func(acked int) {
		if acked >= half && !killed {
			killed = true
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
}

// sealCount reads how many segments the proxy has sealed.
func sealCount(t *testing.T, p *proxy.Proxy) float64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return must(p.Metric(ctx, "delaygate_store_seals_total"))(t)
}
