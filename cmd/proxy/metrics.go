package main

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// newLateness counts how long after its due time a message was confirmed by its broker.
func newLateness() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "delaygate_delivery_lateness_seconds",
		Help:    "Time from a message's due time to its broker's answer.",
		Buckets: []float64{.001, .002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60, 600, 3600},
	})
}

func registerMetrics(r *prometheus.Registry, a *app) {
	r.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		a.lateness,
		&stateCollector{a},
	)
}

// stateCollector reads the parts' own counters when metrics are asked for.
type stateCollector struct{ a *app }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("delaygate_"+name, help, labels, nil)
}

var (
	descPending     = desc("store_pending_messages", "Messages accepted and not yet delivered.")
	descOverdue     = desc("store_overdue_messages", "Pending messages whose due time has passed.")
	descOldest      = desc("store_oldest_overdue_seconds", "Age of the oldest overdue message.")
	descSegments    = desc("store_segments", "Intake log segments not yet sealed.")
	descRuns        = desc("store_runs", "Sorted runs with pending messages.")
	descDisk        = desc("store_disk_bytes", "Size of the store's files.")
	descSeals       = desc("store_seals_total", "Segments sealed into runs.")
	descLoads       = desc("store_loads_total", "Bodies read for delivery, from the intake log or from sorted runs.", "place")
	descFree        = desc("store_disk_free_bytes", "Free space on the data disk, without the reserve and with what blank segments would give back.")
	descShort       = desc("store_refusing", "1 while messages are refused for want of space or a failed disk: far ones, or all.", "messages")
	descReserve     = desc("store_reserve", "1 while the space set aside for sealing is there.")
	descSettling    = desc("store_settling", "Delivered messages of which that is not on the disk yet.")
	descJumps       = desc("store_clock_jumps_total", "Steps of the wall clock of a second or more.")
	descJump        = desc("store_clock_last_jump_seconds", "Size of the last of them, negative when the clock went back.")
	descCorrupt     = desc("store_corrupt_total", "Damaged records, pages and files met.")
	descLost        = desc("store_lost_total", "Pending messages that damage on the disk has taken.")
	descAccepted    = desc("gate_held_total", "Messages held and acknowledged.")
	descRecalled    = desc("gate_recalled_total", "Messages taken back by their recall handle.")
	descRefused     = desc("gate_refused_total", "Requests answered with an error of the proxy's own.")
	descConnections = desc("client_connections", "Open client connections.")
	descDelivered   = desc("delivery_delivered_total", "Messages that their broker has stored.")
	descRetried     = desc("delivery_retried_total", "Deliveries that were answered busy, unavailable or not at all.")
	descRejected    = desc("delivery_rejected_total", "Deliveries that a broker refused.", "code")
	descInFlight    = desc("delivery_in_flight", "Deliveries without an answer yet.")
	descWaiting     = desc("delivery_waiting", "Fired messages that wait for their turn.")
	descKept        = desc("delivery_kept", "Refused messages that wait to be tried again.")
	descUnsendable  = desc("delivery_unsendable_total", "Messages that could not be read or are no frame that a broker takes.")
	descDown        = desc("delivery_brokers_down", "Brokers that cannot be reached.")
)

// Describe sends nothing: an unchecked collector, whose metrics depend on what has happened.
func (c *stateCollector) Describe(chan<- *prometheus.Desc) {}

func (c *stateCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	s := c.a.store.Stats()
	gauge(descPending, float64(s.Pending))
	gauge(descOverdue, float64(s.Overdue))
	gauge(descOldest, float64(s.OldestOverdueMs)/1000)
	gauge(descSegments, float64(s.Segments))
	gauge(descRuns, float64(s.Runs))
	gauge(descDisk, float64(s.DiskBytes))
	counter(descSeals, float64(s.Seals))
	counter(descLoads, float64(s.LoadsFromLog), "log")
	counter(descLoads, float64(s.LoadsFromRuns), "run")
	counter(descCorrupt, float64(s.Corrupt))
	gauge(descFree, float64(s.FreeBytes))
	gauge(descShort, flag(s.FarRefused), "far")
	gauge(descShort, flag(s.PutsRefused), "all")
	gauge(descReserve, flag(s.Reserve))
	gauge(descSettling, float64(s.Settling))
	counter(descJumps, float64(s.ClockJumps))
	gauge(descJump, float64(s.LastClockJumpMs)/1000)
	counter(descLost, float64(s.Lost))
	g := c.a.gate.Stats()
	counter(descAccepted, float64(g.Held))
	counter(descRecalled, float64(g.Recalled))
	counter(descRefused, float64(g.Refused))
	gauge(descConnections, float64(c.a.server.Connections()))
	d := c.a.delivery.Stats()
	counter(descDelivered, float64(d.Delivered))
	counter(descRetried, float64(d.Retried))
	for code, n := range d.Refused {
		counter(descRejected, float64(n), strconv.Itoa(int(code)))
	}
	counter(descUnsendable, float64(d.Unsendable))
	gauge(descInFlight, float64(d.InFlight))
	gauge(descWaiting, float64(d.Waiting))
	gauge(descKept, float64(d.Kept))
	gauge(descDown, float64(len(d.Down)))
}

func flag(on bool) float64 {
	if on {
		return 1
	}
	return 0
}
