package remoting

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/delaygate/delaygate/codec"
)

// offline is a session without sockets and loop: what is written to either side stays in its outbox.
func offline(h Handler) *session {
	srv := &Server{o: Options{Handler: h, Log: slog.New(slog.DiscardHandler), HighWater: 1 << 30, LowWater: 1 << 20}}
	srv.mem.budget = 1 << 30
	s := newSession(srv, target{"10.0.0.1:10911", 20000}, netip.AddrPort{}, netip.AddrPort{})
	s.up, s.flights = newWire(s), new(inflight)
	return s
}

func (o *outbox) all() []byte {
	var b []byte
	for o.n > 0 {
		b = append(b, o.front()...)
		o.drop(len(o.front()))
	}
	return b
}

// cut splits b at places that a seed decides.
func cut(b []byte, seed uint64) [][]byte {
	rnd := rand.New(rand.NewPCG(seed, 0))
	var parts [][]byte
	for len(b) > 0 {
		n := 1 + rnd.IntN(len(b))
		if rnd.IntN(2) == 0 {
			n = min(len(b), 1+rnd.IntN(12))
		}
		parts = append(parts, b[:n])
		b = b[n:]
	}
	return parts
}

var passOrTake = &handler{
	wants: func(_ Peer, h codec.Head, _ []byte) bool { return h.Code%3 != 0 },
	handle: func(p Peer, h codec.Head, frame []byte) Verdict {
		if h.Code%3 == 1 {
			return Pass
		}
		p.Reply(frame) // recognizable
		return Taken
	},
}

// expect is what of the frames in b must go up and what must come back; sound says that all of b is frames.
func expect(b []byte) (up, down []byte, sound bool) {
	for len(b) > 0 {
		size, err := codec.FrameSize(b)
		if err != nil {
			return up, down, false
		}
		end, err := codec.HeaderEnd(b)
		if err != nil {
			return up, down, false
		}
		if size == 0 || end == 0 || end > len(b) {
			return up, down, true
		}
		h, err := codec.ParseHead(b)
		if err != nil {
			return up, down, false
		}
		whole := len(b) >= size
		n := min(len(b), size)
		switch {
		case h.IsResponse() || h.Code%3 == 0:
			up = append(up, b[:n]...)
		case whole && h.Code%3 == 1:
			up = append(up, b[:n]...)
		case whole:
			down = append(down, b[:n]...)
		}
		b = b[n:]
	}
	return up, down, true
}

func FuzzClientBytes(f *testing.F) {
	f.Add([]byte{}, uint64(1))
	f.Add(slices.Concat(request(0, 1, 0, []byte("a")), jsonRequest(1, 2, 0, []byte("b")), request(2, 3, 0, []byte("c"))), uint64(2))
	f.Add(slices.Concat(request(2, 1, 0, make([]byte, 100)), reply(7, nil), jsonRequest(2, 2, codec.FlagOneway, nil), request(3, 3, 0, nil)), uint64(3))
	f.Add(append(request(1, 1, 0, nil), 0xff, 0, 0, 0, 0), uint64(4))
	f.Add([]byte{0, 0, 0, 4, 0, 0, 0, 0, 1, 1}, uint64(5))
	f.Fuzz(func(t *testing.T, b []byte, seed uint64) {
		s := offline(passOrTake)
		for _, p := range cut(b, seed) {
			s.fromClient(p)
			s.takePending()
			s.flushReplies()
		}
		up, down, sound := expect(b)
		if sound == s.client.dead {
			t.Fatalf("sound frames: %v, connection closed: %v", sound, s.client.dead)
		}
		if got := s.up.out.all(); !bytes.Equal(got, up) {
			t.Fatalf("relayed % x\nwant    % x", got, up)
		}
		if got := s.client.out.all(); sound && !bytes.Equal(got, down) {
			t.Fatalf("replied % x\nwant    % x", got, down)
		}
		s.in.release(&s.srv.mem)
		if n := s.srv.mem.used.Load(); n != 0 {
			t.Fatalf("%d bytes are still counted", n)
		}
	})
}

func FuzzUpstreamBytes(f *testing.F) {
	ours := reply(-5, []byte("ours"))
	f.Add([]byte{}, uint64(1), uint8(1))
	f.Add(slices.Concat(reply(1, []byte("a")), jsonRequest(0, 2, 1, nil), request(40, 3, 2, []byte("c"))), uint64(2), uint8(3))
	f.Add([]byte{0, 0, 0, 4, 9, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0}, uint64(3), uint8(1))
	f.Add([]byte{0, 0, 0, 5, 0}, uint64(4), uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, seed uint64, every uint8) {
		s := offline(&handler{})
		parts := cut(b, seed)
		for i, p := range parts {
			if i%(int(every)+1) == 0 {
				s.replies.push(ours)
				s.flushReplies()
			}
			s.fromUpstream(p)
			s.flushReplies()
		}
		if s.client.dead {
			return // an illegal length; what came before it has gone on or not
		}
		// Without our replies, which stand at boundaries only, the bytes are as they came.
		got := s.client.out.all()
		var theirs []byte
		for len(got) > 0 {
			if bytes.HasPrefix(got, ours) {
				got = got[len(ours):]
				continue
			}
			size, err := codec.FrameSize(got)
			if err != nil {
				t.Fatalf("no boundary where there should be one: %v", err)
			}
			n := min(size, len(got))
			if size == 0 {
				n = len(got)
			}
			theirs = append(theirs, got[:n]...)
			got = got[n:]
		}
		if !bytes.Equal(theirs, b) && !bytes.Contains(b, ours) {
			t.Fatalf("relayed % x\nwant    % x", theirs, b)
		}
	})
}

func TestTrackerFindsEveryHeaderOnce(t *testing.T) {
	var all []byte
	const n = 50
	for i := range int32(n) {
		make := request
		if i%2 == 0 {
			make = jsonRequest
		}
		all = append(all, make(0, i, codec.FlagResponse, bytes.Repeat([]byte{1}, int(i*7%40)))...)
	}
	for seed := range uint64(200) {
		var tr tracker
		next := int32(0)
		for _, p := range cut(all, seed) {
			for len(p) > 0 {
				k, header, err := tr.next(p)
				if err != nil {
					t.Fatal(err)
				}
				p = p[k:]
				if header == nil {
					continue
				}
				h, err := codec.ParseHead(header)
				if err != nil || h.Opaque != next {
					t.Fatalf("seed %d: opaque %d, want %d (%v)", seed, h.Opaque, next, err)
				}
				next++
			}
		}
		if next != n || !tr.boundary() {
			t.Fatalf("seed %d: %d headers, at a boundary: %v", seed, next, tr.boundary())
		}
	}
}

func TestTrackerGivesUpOnHugeHeaders(t *testing.T) {
	f := binary.BigEndian.AppendUint32(nil, 4+200_000+3)
	f = binary.BigEndian.AppendUint32(f, 200_000)
	f = append(f, make([]byte, 200_003)...)
	var tr tracker
	for i := 0; i < len(f); {
		n, header, err := tr.next(f[i:min(len(f), i+1000)])
		if err != nil || header != nil {
			t.Fatalf("header of %d bytes, %v", len(header), err)
		}
		i += n
	}
	if !tr.boundary() || cap(tr.part) > keepBuffer {
		t.Errorf("boundary %v, %d bytes kept", tr.boundary(), cap(tr.part))
	}
}

func TestOutboxIsAQueue(t *testing.T) {
	m := &memory{budget: 1 << 30}
	o := outbox{mem: m}
	rnd := rand.New(rand.NewPCG(3, 3))
	var want []byte
	for range 500 {
		if rnd.IntN(2) == 0 {
			p := make([]byte, rnd.IntN(3*chunkSize))
			for i := range p {
				p[i] = byte(rnd.Uint32())
			}
			o.push(p)
			want = append(want, p...)
		} else if o.n > 0 {
			p := o.front()
			n := min(1+rnd.IntN(2*chunkSize), len(p))
			if !bytes.Equal(p[:n], want[:n]) {
				t.Fatal("wrong bytes")
			}
			o.drop(n)
			want = want[n:]
		}
		if o.n != len(want) {
			t.Fatalf("%d bytes, want %d", o.n, len(want))
		}
	}
	o.clear()
	if o.n != 0 || o.front() != nil || m.used.Load() != 0 {
		t.Errorf("%d bytes, %d counted after clear", o.n, m.used.Load())
	}
}

func TestInflight(t *testing.T) {
	var f inflight
	open := func() (all []int32) {
		f.take(func(h codec.Head) { all = append(all, h.Opaque) })
		slices.Sort(all)
		return all
	}
	f.add(codec.Head{Opaque: 0})
	f.add(codec.Head{Opaque: -1, Serialize: codec.Binary})
	f.add(codec.Head{Opaque: 7})
	f.add(codec.Head{Opaque: 8, Flag: codec.FlagOneway})
	f.add(codec.Head{Opaque: 9, Flag: codec.FlagResponse})
	f.done(7)
	f.done(7 + inflightSlots) // somebody else's
	f.done(inflightSlots)
	if got := open(); !slices.Equal(got, []int32{-1, 0}) {
		t.Errorf("open %v, want -1 0", got)
	}
	if got := open(); got != nil {
		t.Errorf("open %v after take", got)
	}
	f.add(codec.Head{Opaque: 1})
	f.add(codec.Head{Opaque: 1 + inflightSlots}) // overwrites
	f.done(1)
	if got := open(); !slices.Equal(got, []int32{1 + inflightSlots}) {
		t.Errorf("open %v", got)
	}
}
