package compat_test

import (
	"sync"
	"testing"
	"time"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/compat_test/raw"
	"github.com/delaygate/delaygate/compat_test/toolchain"
)

// Runs before the parallel tests and one cluster after the other, so that the lateness it reports is the
// proxy's and not that of a machine with too much to do.
func TestThousandsOfMessagesArriveExactlyOnce(t *testing.T) {
	var starting sync.WaitGroup
	for _, v := range toolchain.Versions {
		starting.Go(func() { _, _ = suite.target(v) }) // an error is kept, and shows below
	}
	starting.Wait()
	for _, v := range toolchain.Versions {
		t.Run(v, func(t *testing.T) { volume(t, v) })
	}
}

func volume(t *testing.T, version string) {
	const queues = 8
	ctx := t.Context()
	c := must(suite.clusters[version]())(t)
	ns := must(suite.target(version))(t)
	addr := must(raw.MasterAddr(ctx, ns, brokerA))(t)
	open := func(name string) *flood {
		topic := "volume-" + name
		if err := createTopic(ctx, c, brokerA, topic, queues); err != nil {
			t.Fatal(err)
		}
		return &flood{addr: addr, reader: raw.NewReader(c.Broker(brokerA).Addr, topic, queues), topic: topic, queues: queues, prefix: "V" + name}
	}
	plain, timed, levels := open("plain"), open("timed"), open("levels")
	timed.serialize = codec.Binary
	plain.add(0, 5000)
	levels.addLevel(1, 1000)
	levels.addLevel(2, 1000)
	now := time.Now().UnixMilli()
	for i := range 5000 {
		timed.add(now+3000+int64(i), 1)
	}
	var all sync.WaitGroup
	for _, f := range []*flood{plain, timed, levels} {
		all.Go(func() { f.send(t, 64) })
	}
	all.Wait()
	if t.Failed() {
		return
	}
	time.Sleep(time.Until(time.UnixMilli(now + 8000)))
	for _, f := range []*flood{plain, timed, levels} {
		f.await(t)
	}
	time.Sleep(time.Second) // a repeat would follow closely
	for _, f := range []*flood{plain, timed, levels} {
		f.await(t)
		f.check(t, exactly)
		f.reader.Close()
		if f != plain {
			t.Logf("%s: lateness %v", f.topic, f.lateness())
		}
	}
}
