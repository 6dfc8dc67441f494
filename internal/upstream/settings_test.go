package upstream_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/internal/upstream"
)

func TestSettingsOfABroker(t *testing.T) {
	levels := "1s 2s"
	for _, tc := range []struct {
		name, config string
		want         func(*upstream.Settings)
	}{
		{"nothing said", "brokerName=a\n", func(*upstream.Settings) {}},
		{"all", "messageDelayLevel=1s 2s\ntimerPrecisionMs=100\nmaxMessageSize=65536\nautoCreateTopicEnable=false\nbrokerPermission=4\n", func(s *upstream.Settings) {
			*s = upstream.Settings{MessageDelayLevel: levels, TimerPrecisionMs: 100, MaxMessageSize: 65536, BrokerPermission: 4}
		}},
		{"garbage", "messageDelayLevel=\ntimerPrecisionMs=x\nmaxMessageSize=-1\nautoCreateTopicEnable=perhaps\nbrokerPermission=99999999999\n", func(*upstream.Settings) {}},
		{"java text", "# generated\r\n! old\r\nmessageDelayLevel : 1s\\\r\n    \\ 2s\r\n max\\u004dessageSize=\\u0031\\u0032\r\n", func(s *upstream.Settings) {
			s.MessageDelayLevel, s.MaxMessageSize = levels, 12
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newCluster(t)
			c.config = tc.config
			v := c.view(t, upstream.ViewOptions{})
			want := upstream.DefaultSettings()
			tc.want(&want)
			want.Version = 407
			broker := upstream.Broker{Name: "a", Addr: c.peer.Addr()}
			for range 3 {
				got, err := v.Settings(t.Context(), broker)
				if d := cmp.Diff(want, got); d != "" || err != nil {
					t.Error(d, err)
				}
			}
			if got, ok := v.CachedSettings(broker); !ok || got != want {
				t.Error(got, ok)
			}
			if n := c.count(codec.ReqGetBrokerConfig); n != 1 {
				t.Errorf("asked %d times", n)
			}
		})
	}
}

func TestSettingsWhileTheBrokerIsDown(t *testing.T) {
	c := newCluster(t)
	v := c.view(t, upstream.ViewOptions{})
	broker := upstream.Broker{Name: "a", Addr: c.peer.Addr()}
	c.set(func() { c.code = 1 })
	for range 3 {
		got, err := v.Settings(t.Context(), broker)
		if err == nil || got != upstream.DefaultSettings() {
			t.Error("want the defaults and an error", got, err)
		}
	}
	if n := c.count(codec.ReqGetBrokerConfig); n != 1 {
		t.Errorf("asked %d times within a second", n)
	}
	if _, ok := v.CachedSettings(broker); ok {
		t.Error("defaults are not known settings")
	}
}

func TestRunFollowsSettingsAndWarnsOfLevels(t *testing.T) {
	c := newCluster(t)
	other := newCluster(t)
	c.set(func() {
		c.info = strings.Replace(info("a", fmt.Sprintf("0:%q,1:%q", c.peer.Addr(), other.peer.Addr())), `"C":["a"]`, `"C":["a"]`, 1)
		c.config = "messageDelayLevel=1s 5s\nmaxMessageSize=1000\n"
	})
	other.set(func() { other.config = "messageDelayLevel=1s  5s\n" })
	v := c.view(t, upstream.ViewOptions{SettingsTTL: 100 * time.Millisecond, Refresh: 50 * time.Millisecond})
	run(t, v)
	broker := upstream.Broker{Name: "a", Addr: c.peer.Addr()}
	eventually(t, "settings are read without being asked for", func() bool {
		s, ok := v.CachedSettings(broker)
		_, ok2 := v.CachedSettings(upstream.Broker{Addr: other.peer.Addr()})
		return ok && ok2 && s.MaxMessageSize == 1000
	})
	if strings.Contains(c.log.String(), "delay levels") {
		t.Errorf("a warning without reason:\n%s", c.log.String())
	}
	c.set(func() { c.config = "messageDelayLevel=1s 7s\n" })
	eventually(t, "warnings", func() bool {
		return strings.Contains(c.log.String(), "delay levels of a broker changed") && strings.Contains(c.log.String(), "brokers disagree")
	})
	c.peer.Stop()
	time.Sleep(150 * time.Millisecond)
	if s, err := v.Settings(t.Context(), broker); err != nil || s.MessageDelayLevel != "1s 7s" {
		t.Error("the last known settings did not serve: ", s, err)
	}
}
