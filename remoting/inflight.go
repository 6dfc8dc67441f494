package remoting

import "github.com/delaygate/delaygate/codec"

const inflightSlots = 256 // a power of two

// inflight remembers the relayed requests of one session that have not been answered, so that a client
// which does not fail its pending calls when a connection closes (rocketmq-client-go v2) can be told when
// the upstream dies. It has a fixed size: requests whose opaques are equal modulo inflightSlots overwrite
// each other, and a request that never gets a reply stays until then. Clients ignore a reply to an opaque
// they no longer wait for. Loop only.
type inflight struct {
	slots [inflightSlots]flight
}

type flight struct {
	opaque    int32
	serialize codec.Serialize
	open      bool
}

// add notes a relayed request; a one-way request expects no reply.
func (f *inflight) add(h codec.Head) {
	if h.IsOneway() || h.IsResponse() {
		return
	}
	f.slots[uint32(h.Opaque)%inflightSlots] = flight{h.Opaque, h.Serialize, true}
}

// done notes the reply to opaque.
func (f *inflight) done(opaque int32) {
	s := &f.slots[uint32(opaque)%inflightSlots]
	if s.opaque == opaque {
		s.open = false
	}
}

// take empties the table into fn.
func (f *inflight) take(fn func(h codec.Head)) {
	for i := range f.slots {
		s := &f.slots[i]
		if s.open {
			s.open = false
			fn(codec.Head{Opaque: s.opaque, Serialize: s.serialize})
		}
	}
}
