package compat_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/compat_test/raw"
)

// Old Java clients send to the advertised port minus two.
func TestThePortTwoBelowIsTheSameBroker(t *testing.T) {
	t.Parallel()
	eachVersion(t, func(t *testing.T, version string) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		c := must(suite.clusters[version]())(t)
		listener := must(netip.ParseAddrPort(must(raw.MasterAddr(ctx, must(suite.target(version))(t), brokerA))(t)))(t)
		vip := netip.AddrPortFrom(listener.Addr(), listener.Port()-2).String()
		const topic = "vip"
		if err := createTopic(ctx, c, brokerA, topic, 1); err != nil {
			t.Fatal(err)
		}
		conn := must(raw.Dial(ctx, vip))(t)
		defer conn.Close()
		want := map[string]bool{}
		for i, delay := range []string{"0", "1"} {
			m := &raw.Message{Topic: topic, Body: []byte("x"), Serialize: codec.Serialize(i)}
			m.Props.Set(codec.PropUniqKey, fmt.Sprintf("VIP-%028d", i))
			m.Props.Set("DELAY", delay)
			must(conn.Send(ctx, m))(t)
			want[fmt.Sprintf("VIP-%028d", i)] = true
		}
		reader := raw.NewReader(c.Broker(brokerA).Addr, topic, 1)
		defer reader.Close()
		err := reader.Until(ctx, func() bool { return len(want) == 0 }, func(m *codec.StoredMessage) { delete(want, uniqKey(*m)) })
		if err != nil {
			t.Errorf("%d messages are missing: %v", len(want), err)
		}
	})
}
