package route

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/internal/upstream"
)

// What clients read. None tells an upstream address.
const (
	remarkDown       = "no name server answers the proxy, and it has kept no earlier reply: try again"
	remarkUnreadable = "the proxy cannot read the name server's reply: keep the route you have; its log says more"
	remarkNoListener = "the proxy has no listener yet for a broker of this reply: keep the route you have; its log says more"
	remarkEmpty      = "the name server knows the topic but no broker for it now: keep the route you have"
	remarkNoHost     = "the proxy cannot tell the address you reached it by: set advertise.host"
)

// refreshTime bounds how long a reply with an unknown broker waits for the cluster info. Together with the
// 2.5 s for the name servers it stays within the 3 s that a Java client waits for a route.
const refreshTime = 400 * time.Millisecond

var errNoListener = errors.New("no listener")

// answerAddresses asks one name server and replaces the broker addresses in its reply.
func (f *Face) answerAddresses(ctx context.Context, c *codec.Command, local netip.AddrPort) *codec.Command {
	host, ok := f.advertisedHost(local)
	if !ok {
		f.o.Log.Error("the address to advertise is not known: set advertise.host", "local", local)
		return refuse(c, codec.RespSystemError, remarkNoHost)
	}
	r, live := f.ask(ctx, c)
	if r == nil {
		return refuse(c, codec.RespSystemError, remarkDown)
	}
	if r.Code != codec.RespSuccess {
		return replyTo(c, r)
	}
	brokers, err := readBrokers(c.Code, r.Body)
	if err != nil {
		f.o.Log.Error("a name server's reply cannot be read", "code", c.Code, "err", err)
		return refuse(c, codec.RespSystemError, remarkUnreadable)
	}
	if c.Code == codec.ReqGetRouteInfoByTopic && len(brokers) == 0 {
		return refuse(c, codec.RespSystemError, remarkEmpty)
	}
	if live {
		f.meet(ctx, brokers)
	}
	body, err := rewrite(c.Code, r.Body, func(addr string) (string, error) { return f.translate(addr, host) })
	if errors.Is(err, errNoListener) {
		return refuse(c, codec.RespSystemError, remarkNoListener)
	}
	if err != nil {
		f.o.Log.Error("a name server's reply cannot be rewritten", "code", c.Code, "err", err)
		return refuse(c, codec.RespSystemError, remarkUnreadable)
	}
	if live {
		f.keep(c, r)
	}
	out := replyTo(c, r)
	out.Body = body
	return out
}

// ask returns the reply of a name server, or while none answers the last good one. nil: neither.
func (f *Face) ask(ctx context.Context, c *codec.Command) (r *codec.Command, live bool) {
	r, err := f.o.NameServers.Call(ctx, forward(c))
	if err == nil {
		if f.down.Swap(false) {
			f.o.Log.Info("the name servers answer again")
		}
		if r.Code == codec.RespTopicNotExist {
			f.kept.drop(cacheKey(c))
		}
		return r, true
	}
	if !f.down.Swap(true) {
		f.o.Log.Warn("no name server answers, earlier replies serve", "for", f.o.Keep, "err", err)
	}
	return f.kept.get(cacheKey(c), f.o.Now()), false
}

func (f *Face) keep(c, r *codec.Command) {
	if c.Code == codec.ReqGetRouteInfoByTopic || c.Code == codec.ReqGetBrokerClusterInfo {
		f.kept.put(cacheKey(c), r, f.o.Now())
	}
}

// meet makes brokers known that a reply names for the first time. The cluster info is asked for, so that
// ports are assigned in the order of the brokers' names rather than of the clients' questions.
func (f *Face) meet(ctx context.Context, brokers []upstream.Broker) {
	if !slices.ContainsFunc(brokers, f.isNew) {
		return
	}
	f.refresh(ctx)
	var named []upstream.Broker
	for _, b := range brokers {
		if _, known := f.o.View.ByAddr(b.Addr); !known && b.Name != "" {
			named = append(named, b)
		}
	}
	if len(named) > 0 {
		f.o.View.Seed(named)
	}
	f.listeners.learn(f.o.View.Brokers())
}

// refresh asks for the cluster info, once for all who want it at a time.
func (f *Face) refresh(ctx context.Context) {
	_, _, _ = f.flights.Do("refresh", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refreshTime)
		defer cancel()
		if err := f.o.View.Refresh(ctx); err != nil {
			f.o.Log.Warn("the cluster info cannot be read for a new broker", "err", err)
		}
		return nil, nil
	})
}

func (f *Face) isNew(b upstream.Broker) bool {
	_, known := f.o.Book.Lookup(b.Addr)
	return !known
}

// translate returns the address under which a client reaches the listener of a broker.
func (f *Face) translate(addr, host string) (string, error) {
	if addr == "" {
		return "", nil
	}
	port, err := f.listeners.open(addr)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNoListener, err)
	}
	return net.JoinHostPort(host, strconv.Itoa(f.o.Advertise.port(port))), nil
}

func (f *Face) advertisedHost(local netip.AddrPort) (string, bool) {
	if f.o.Advertise.Host != "" {
		return f.o.Advertise.Host, true
	}
	ip := local.Addr().Unmap().WithZone("")
	if !ip.IsValid() || ip.IsUnspecified() {
		return "", false
	}
	return ip.String(), true
}

func (a Advertise) port(listened int) int {
	if p, ok := a.Ports[listened]; ok {
		return p
	}
	return listened
}

// readBrokers lists the brokers of a reply, in a fixed order.
func readBrokers(code int32, body []byte) ([]upstream.Broker, error) {
	var datas []codec.BrokerData
	switch code {
	case codec.ReqGetRouteInfoByTopic:
		r, err := codec.ParseRoute(body)
		if err != nil {
			return nil, err
		}
		if len(r.Queues) > 0 {
			datas = r.Brokers
		}
	case codec.ReqGetBrokerClusterInfo:
		info, err := codec.ParseClusterInfo(body)
		if err != nil {
			return nil, err
		}
		for name, d := range info.Brokers {
			d.BrokerName = name
			datas = append(datas, d)
		}
	}
	var out []upstream.Broker
	for _, d := range datas {
		for id, addr := range d.BrokerAddrs {
			if addr != "" {
				out = append(out, upstream.Broker{Name: d.BrokerName, Cluster: d.Cluster, ID: id, Addr: addr})
			}
		}
	}
	slices.SortFunc(out, compareBrokers)
	return out, nil
}
