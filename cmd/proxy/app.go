package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/internal/admin"
	"github.com/delaygate/delaygate/internal/config"
	"github.com/delaygate/delaygate/internal/delivery"
	"github.com/delaygate/delaygate/internal/gate"
	"github.com/delaygate/delaygate/internal/route"
	"github.com/delaygate/delaygate/internal/upstream"
	"github.com/delaygate/delaygate/levels"
	"github.com/delaygate/delaygate/remoting"
	"github.com/delaygate/delaygate/timer"
)

const (
	// drainTimeout bounds how long a shutdown waits for open requests, and then for brokers' answers.
	drainTimeout = 5 * time.Second

	bookFile    = "addresses.json"
	storeFolder = "store"
)

// app is a running proxy: every part, wired.
type app struct {
	log *slog.Logger

	cancel   context.CancelFunc
	loops    sync.WaitGroup
	admin    *admin.Server
	store    *timer.Store
	client   *upstream.Client
	view     *upstream.View
	face     *route.Face
	gate     *gate.Gate
	server   *remoting.Server
	delivery *delivery.Delivery
	lateness prometheus.Histogram

	serving atomic.Bool
}

// start opens the data folder, recovers what is pending and begins to serve. A proxy whose upstream
// does not answer starts all the same: it keeps asking, and says so.
func start(cfg config.Config, log *slog.Logger) (*app, error) {
	ctx, cancel := context.WithCancel(context.Background())
	a := &app{log: log, cancel: cancel, lateness: newLateness()}
	if err := a.open(ctx, cfg); err != nil {
		return nil, errors.Join(err, a.close())
	}
	a.serving.Store(true)
	log.Info("delaygate serves", "namesrv", cfg.Listen, "upstream", cfg.NameServers(), "data", cfg.Data,
		"pending", a.store.Stats().Pending, "admin", a.admin.Addr(), "advertised", advertised(cfg))
	return a, nil
}

func (a *app) open(ctx context.Context, cfg config.Config) error {
	registry := prometheus.NewRegistry()
	var err error
	if a.admin, err = admin.Start(admin.Options{Addr: cfg.Admin, Ready: a.checks(), Metrics: registry, Log: a.log}); err != nil {
		return fmt.Errorf("%w; choose another address with --admin", err)
	}
	book, err := a.openData(cfg)
	if err != nil {
		return err
	}
	a.client = upstream.NewClient(upstream.Options{Log: a.log})
	names := upstream.NewNameServers(a.client, cfg.NameServers())
	a.view = upstream.NewView(upstream.ViewOptions{Client: a.client, NameServers: names, Log: a.log})
	a.view.Seed(book.Brokers())
	if err := a.openGate(cfg, book, names); err != nil {
		return err
	}
	a.startDelivery()
	registerMetrics(registry, a)
	a.loops.Go(func() { a.view.Run(ctx) })
	a.loops.Go(func() { a.face.Run(ctx) })
	if _, err := a.server.ListenNameServer(cfg.Listen); err != nil {
		return fmt.Errorf("%w; choose another address with --listen", err)
	}
	return nil
}

// openData opens what the data folder holds: the address book and the timer store.
func (a *app) openData(cfg config.Config) (*route.Book, error) {
	if err := os.MkdirAll(cfg.Data, 0o750); err != nil {
		return nil, fmt.Errorf("data folder %s: %w; name one that can be written with --data", cfg.Data, err)
	}
	o := timer.DefaultOptions()
	o.Dir = filepath.Join(cfg.Data, storeFolder)
	o.Now = func() int64 { return wallClock().UnixMilli() }
	o.Log = a.log
	o.SyncEvery, o.SegmentBytes, o.Horizon = cfg.Store.SyncEvery, cfg.Store.SegmentBytes, cfg.Store.Horizon
	o.MinFree, o.FarFree, o.FarAfter = cfg.Store.MinFree, cfg.Store.FarFree, cfg.Store.FarAfter
	if cfg.Store.Sync == "interval" {
		o.Sync = timer.SyncInterval
	}
	// The store locks the folder, so it comes first: nobody else is at the address book from here on.
	var err error
	if a.store, err = timer.Open(o); err != nil {
		return nil, fmt.Errorf("data folder %s: %w", cfg.Data, err)
	}
	first, last, err := cfg.PortRange()
	if err != nil {
		return nil, err
	}
	return route.OpenBook(filepath.Join(cfg.Data, bookFile), first, last)
}

// openGate starts the listeners' engine and what decides about their requests.
func (a *app) openGate(cfg config.Config, book *route.Book, names *upstream.NameServers) error {
	ports, err := cfg.PortMap()
	if err != nil {
		return err
	}
	host, _, err := net.SplitHostPort(cfg.Listen)
	if err != nil {
		return err
	}
	table, err := levels.Parse(cfg.Hold.Levels)
	if err != nil {
		return err
	}
	book.Avoid(func(port int) bool { return canListen(host, port) })
	opener := &lateOpener{}
	a.face = route.NewFace(route.FaceOptions{
		NameServers: names, View: a.view, Book: book, Opener: opener, Host: host,
		Advertise: route.Advertise{Host: cfg.Advertise.Host, Ports: ports}, Log: a.log,
	})
	a.gate = gate.New(gate.Options{
		Store: a.store, View: a.view, Face: a.face, IDs: newIDs(host), Levels: table,
		MaxDelay: cfg.Hold.MaxDelay, Now: wallClock, Log: a.log,
	})
	if a.server, err = remoting.Start(remoting.Options{Handler: a.gate, Log: a.log}); err != nil {
		return err
	}
	opener.Server = a.server
	return nil
}

// canListen tells whether nobody else listens on a port.
func canListen(host string, port int) bool {
	ln, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return ln.Close() == nil
}

// lateOpener closes the circle of face, gate and server: the face opens listeners on a server whose
// handler needs the face. It is complete before the face is used.
type lateOpener struct{ *remoting.Server }

func newIDs(host string) *codec.UniqueIDs {
	addr, err := netip.ParseAddr(host)
	if err != nil || addr.IsUnspecified() {
		addr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return codec.NewUniqueIDs(addr, os.Getpid(), rand.Uint32())
}

func (a *app) startDelivery() {
	a.delivery = delivery.New(delivery.Options{
		Store: a.store, Send: a.client.Send, Master: a.view.Master, WriteQueues: a.view.WriteQueues,
		Now: func() int64 { return wallClock().UnixMilli() },
		OnDelivered: func(it timer.Item, now int64) {
			a.lateness.Observe(float64(now-it.Due) / 1000)
		},
		Log: a.log,
	})
	a.store.Start(a.delivery.Fire)
}

func (a *app) checks() []admin.Check {
	return []admin.Check{
		{Name: "store", Err: func() error {
			if !a.serving.Load() {
				return errors.New("still opening the data folder")
			}
			return nil
		}},
		{Name: "routes", Err: func() error {
			if !a.serving.Load() || !a.view.Known() {
				return errors.New("no name server has told the cluster's brokers yet")
			}
			return nil
		}},
		{Name: "listeners", Err: func() error {
			if !a.serving.Load() {
				return errors.New("not open yet")
			}
			if closed := a.face.Unopened(); len(closed) > 0 {
				return fmt.Errorf("no listener for %s: its port is in use by another program, see the log", strings.Join(closed, ", "))
			}
			return nil
		}},
	}
}

// close ends every part that was started: no new clients, open requests answered, deliveries in flight
// settled, the store synced.
func (a *app) close() error {
	a.serving.Store(false)
	drain := func(what string, f func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
		defer cancel()
		if err := f(ctx); err != nil {
			return fmt.Errorf("shutdown: %s: %w", what, err)
		}
		return nil
	}
	var errs []error
	if a.server != nil {
		errs = append(errs, drain("clients", a.server.Shutdown))
	}
	if a.gate != nil {
		errs = append(errs, drain("requests", a.gate.Close))
	}
	a.cancel()
	if a.delivery != nil {
		errs = append(errs, drain("deliveries", a.delivery.Close))
	}
	if a.store != nil {
		errs = append(errs, a.store.Close())
	}
	if a.client != nil {
		a.client.Close()
	}
	a.loops.Wait()
	if a.admin != nil {
		errs = append(errs, drain("admin", a.admin.Close))
	}
	return errors.Join(errs...)
}

func advertised(cfg config.Config) string {
	if cfg.Advertise.Host != "" {
		return cfg.Advertise.Host
	}
	return "the address each client came in on"
}
