package config

import (
	"time"
)

// Config is everything that can be set. It is filled by [Load] and read-only afterwards.
type Config struct {
	// Listen is the host:port on which name-server requests are answered: what clients use as namesrvAddr.
	Listen string `koanf:"listen"`
	// Upstream lists the real name servers, host:port separated by semicolons, as clients write them.
	Upstream string `koanf:"upstream"`
	// Data is the folder of the timer store and the address book. One process at a time may use it.
	Data string `koanf:"data"`
	// BrokerPorts is the range FIRST-LAST of the ports that stand for brokers, one every ten ports.
	BrokerPorts string `koanf:"broker_ports"`
	// Admin is the host:port of the HTTP server for health and metrics.
	Admin string `koanf:"admin"`

	Advertise Advertise `koanf:"advertise"`
	Hold      Hold      `koanf:"hold"`
	Store     Store     `koanf:"store"`
	Log       Log       `koanf:"log"`
}

// Advertise says under which address clients reach the broker listeners.
type Advertise struct {
	// Host replaces the default, which is the local address on which a client reached the proxy.
	Host string `koanf:"host"`
	// Ports maps listener ports to the ports that clients must use (NAT, NodePort): "20000:30000,20010:30010".
	Ports string `koanf:"ports"`
}

// Hold says what is held and for how long.
type Hold struct {
	// MaxDelay is the longest delay accepted; a longer one is refused with code 13.
	MaxDelay time.Duration `koanf:"max_delay"`
	// Levels is the delay-level table that serves while a broker has not told its own.
	Levels string `koanf:"levels"`
}

// Store configures the timer store.
type Store struct {
	// Sync is "always" (acknowledged = on disk) or "interval" (on disk within SyncEvery).
	Sync string `koanf:"sync"`
	// SyncEvery is the longest time without an fsync in interval mode: the loss window of a power failure.
	SyncEvery time.Duration `koanf:"sync_every"`
	// SegmentBytes is the size of one intake log segment, 1 MiB to 1 GiB.
	SegmentBytes int64 `koanf:"segment_bytes"`
	// Horizon is how far ahead entries are kept in RAM, 1 s to 10 min.
	Horizon time.Duration `koanf:"horizon"`
	// MinFree is what must be free on the data disk, in bytes, for anything to be held; what sealing needs if that is more.
	MinFree int64 `koanf:"min_free"`
	// FarFree is what must be free for messages due further ahead than FarAfter; at least four segments above MinFree's mark.
	FarFree int64 `koanf:"far_free"`
	// FarAfter is how far ahead a message counts as far, 1 s to 10 years.
	FarAfter time.Duration `koanf:"far_after"`
}

// Log configures what is written to standard error.
type Log struct {
	// Level is debug, info, warn or error.
	Level string `koanf:"level"`
	// Format is text or json.
	Format string `koanf:"format"`
}

// Default returns the settings of a proxy beside its client: loopback only, full durability.
func Default() Config {
	return Config{
		Listen:      "127.0.0.1:9876",
		Data:        "delaygate-data",
		BrokerPorts: "20000-29990",
		Admin:       "127.0.0.1:9880",
		Hold: Hold{
			MaxDelay: 40 * 24 * time.Hour,
			Levels:   "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
		},
		Store: Store{
			Sync:         "always",
			SyncEvery:    200 * time.Millisecond,
			SegmentBytes: 64 << 20,
			Horizon:      30 * time.Second,
			FarAfter:     time.Hour,
		},
		Log: Log{Level: "info", Format: "text"},
	}
}
