package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/delaygate/delaygate/internal/config"
)

func TestLaterSourcesWin(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	text := "listen: 127.0.0.1:1\nstore:\n  horizon: 5s\n  segment_bytes: 2097152\n  sync: interval\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, stray, err := config.Load(config.Sources{
		File:    path,
		Environ: []string{"DELAYGATE_STORE_SEGMENT_BYTES=1048576", "DELAYGATE_LISTEN=127.0.0.1:2", "DELAYGATE_SERVICE_HOST=10.0.0.1", "HOME=/x"},
		Flags:   map[string]string{"listen": "127.0.0.1:3"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := config.Default()
	want.Listen = "127.0.0.1:3"
	want.Store.Horizon = 5 * time.Second
	want.Store.SegmentBytes = 1 << 20
	want.Store.Sync = "interval"
	if d := cmp.Diff(want, c); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"DELAYGATE_SERVICE_HOST"}, stray); d != "" {
		t.Error("stray variables:", d)
	}
}

func TestBadSettingsNameTheKey(t *testing.T) {
	for _, tc := range []struct{ key, value, want string }{
		{"listen", "9876", "listen"},
		{"upstream", "127.0.0.1:9876;nowhere", "upstream"},
		{"data", "", "data"},
		{"broker_ports", "30000-20000", "broker_ports"},
		{"broker_ports", "x", "broker_ports"},
		{"advertise.ports", "20000=1", "advertise.ports"},
		{"admin", "", "admin"},
		{"hold.max_delay", "0s", "hold.max_delay"},
		{"hold.max_delay", "40 days", "hold.max_delay"},
		{"hold.levels", "1s 5x", "hold.levels"},
		{"store.sync", "never", "store.sync"},
		{"store.sync_every", "2h", "store.sync_every"},
		{"store.segment_bytes", "1", "store.segment_bytes"},
		{"store.segment_bytes", "many", "segment_bytes"},
		{"store.horizon", "1ms", "store.horizon"},
		{"store.min_free", "-1", "store.min_free"},
		{"store.min_free", "10GB", "min_free"},
		{"store.far_free", "-1", "store.far_free"},
		{"store.far_after", "0s", "store.far_after"},
		{"store.far_after", "90000h", "store.far_after"},
		{"log.level", "loud", "log.level"},
		{"log.format", "xml", "log.format"},
	} {
		_, _, err := config.Load(config.Sources{Flags: map[string]string{tc.key: tc.value}})
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s=%q: got %v, want one line naming %s", tc.key, tc.value, err, tc.want)
		}
	}
}

func TestUnknownKeyInFileIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte("store:\n  horizont: 5s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err := config.Load(config.Sources{File: path})
	if err == nil || !strings.Contains(err.Error(), "store.horizont") {
		t.Fatalf("got %v", err)
	}
	if _, _, err = config.Load(config.Sources{File: path + ".missing"}); err == nil {
		t.Fatal("a missing file was accepted")
	}
}

func TestDerivedSettings(t *testing.T) {
	c := config.Default()
	c.Upstream = "a:1;b:2"
	c.Advertise.Ports = "20000:30000, 20010:30010"
	if d := cmp.Diff([]string{"a:1", "b:2"}, c.NameServers()); d != "" {
		t.Error(d)
	}
	m, err := c.PortMap()
	if d := cmp.Diff(map[int]int{20000: 30000, 20010: 30010}, m); err != nil || d != "" {
		t.Error(err, d)
	}
	first, last, err := c.PortRange()
	if first != 20000 || last != 29990 || err != nil {
		t.Error(first, last, err)
	}
}
