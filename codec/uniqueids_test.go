package codec

import (
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Written by MessageClientIDSetter of RocketMQ 4.9.7 (process 5379, class loader 815033865) on an IPv6 host in UTC.
func TestUniqueIDHasTheJavaLayout(t *testing.T) {
	u := NewUniqueIDs(netip.MustParseAddr("fd00::2"), 5379, 815033865)
	now := time.UnixMilli(1796093403122).UTC()
	for _, want := range []string{
		"FD000000000000000000000000000002" + "1503" + "30946E09" + "009BAFF2" + "0000",
		"FD000000000000000000000000000002" + "1503" + "30946E09" + "009BAFF2" + "0001",
	} {
		if got := u.Next(now); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestUniqueIDOnIPv4(t *testing.T) {
	u := NewUniqueIDs(netip.MustParseAddr("::ffff:172.17.0.1"), 0x12345, 0xAABBCCDD)
	got := u.Next(time.Date(2026, 12, 1, 0, 0, 1, 0, time.UTC))
	if want := "AC110001" + "2345" + "AABBCCDD" + "000003E8" + "0000"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func idTime(id string) string { return id[len(id)-12 : len(id)-4] }

func TestUniqueIDCountsFromLocalMonth(t *testing.T) {
	east := time.FixedZone("east", 8*3600)
	u := NewUniqueIDs(netip.MustParseAddr("10.0.0.1"), 1, 1)
	for _, tc := range []struct {
		now  time.Time
		want string
	}{
		{time.Date(2026, 1, 31, 23, 59, 59, 999e6, east), "9FA523FF"},
		{time.Date(2026, 2, 1, 0, 0, 0, 0, east), "00000000"},
		{time.Date(2026, 2, 28, 0, 0, 0, 0, east), "8B0BB400"},
		{time.Date(2027, 1, 1, 0, 0, 0, 5e6, east), "00000005"},
	} {
		if got := idTime(u.Next(tc.now)); got != tc.want {
			t.Errorf("at %v: time %s, want %s", tc.now, got, tc.want)
		}
	}
}

func TestUniqueIDStaysAheadOfAClockThatStepsBack(t *testing.T) {
	u := NewUniqueIDs(netip.MustParseAddr("10.0.0.1"), 1, 1)
	now := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	first := u.Next(now)
	if back := u.Next(now.Add(-time.Hour)); idTime(back) != idTime(first) || back == first {
		t.Errorf("got %s after %s", back, first)
	}
}

func TestUniqueIDsBeyondTheCounterRunAhead(t *testing.T) {
	u := NewUniqueIDs(netip.MustParseAddr("10.0.0.1"), 1, 1)
	now := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	seen := make(map[string]bool)
	for range 3 * idsPerMs {
		seen[u.Next(now)] = true
	}
	if len(seen) != 3*idsPerMs {
		t.Fatalf("%d ids in one millisecond, %d of them different", 3*idsPerMs, len(seen))
	}
	if got := idTime(u.Next(now)); got != "00000003" {
		t.Errorf("time %s, want 00000003", got)
	}
}

func TestUniqueIDsFromManyGoroutinesDiffer(t *testing.T) {
	u := NewUniqueIDs(netip.MustParseAddr("10.0.0.1"), 1, 1)
	const makers, each = 8, 2000
	ids := make([][]string, makers)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			for range each {
				ids[i] = append(ids[i], u.Next(time.Now()))
			}
		})
	}
	wg.Wait()
	seen := make(map[string]bool)
	for _, some := range ids {
		for _, id := range some {
			seen[id] = true
		}
	}
	if len(seen) != makers*each {
		t.Errorf("%d ids, %d of them different", makers*each, len(seen))
	}
}

func TestUniqueIDsDifferWhateverTheClockDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := NewUniqueIDs(drawAddr(t, "addr"), rapid.Int().Draw(t, "pid"), rapid.Uint32().Draw(t, "seed"))
		now := time.Date(2026, 12, 15, 0, 0, 0, 0, time.UTC)
		seen := make(map[string]bool)
		length := len(u.prefix) + 12
		for _, step := range rapid.SliceOfN(rapid.Int64Range(-1000, 1000), 1, 50).Draw(t, "steps") {
			now = now.Add(time.Duration(step) * time.Millisecond)
			id := u.Next(now)
			if seen[id] || len(id) != length || strings.ToUpper(id) != id {
				t.Fatalf("id %s: made before %v, length %d", id, seen[id], len(id))
			}
			seen[id] = true
		}
	})
}
