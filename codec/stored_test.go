package codec

import (
	"errors"
	"math"
	"net/netip"
	"strings"
	"testing"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// Written by MessageDecoder.encode of RocketMQ 5.5.0.
const goldenStored4 = `
	00000065          // size of the record
	DAA320A7          // magic
	3610A686          // CRC-32 of the body
	00000003          // queue id
	00000007          // flag
	000000000000002A  // queue offset
	0000001122334455  // physical offset
	00000000          // system flag
	0000018BCFE5687B  // born timestamp
	0A010203 0000A8CA // born host
	0000018BCFE569C8  // store timestamp
	0A000001 00002A9F // store host
	00000002          // reconsume times
	0000000000000009  // prepared transaction offset
	00000005 68656C6C6F
	01 54             // topic
	0004 61016202     // properties
`

const goldenStored6 = `
	0000007D
	DAA320A7
	3610A686
	00000003
	00000007
	000000000000002A
	0000001122334455
	00000030          // system flag: both hosts are IPv6
	0000018BCFE5687B
	20010DB8000000000000000000000001 0000A8CA
	0000018BCFE569C8
	20010DB8000000000000000000000002 00002A9F
	00000002
	0000000000000009
	00000005 68656C6C6F
	01 54
	0004 61016202
`

func goldenMessage(born, store string, sysFlag int32) StoredMessage {
	return StoredMessage{
		Topic: "T", QueueID: 3, Flag: 7, QueueOffset: 42, PhysicalOffset: 0x1122334455, SysFlag: sysFlag,
		BornTimestamp: 1700000000123, BornHost: netip.MustParseAddrPort(born),
		StoreTimestamp: 1700000000456, StoreHost: netip.MustParseAddrPort(store),
		ReconsumeTimes: 2, PreparedTransactionOffset: 9, Body: []byte("hello"), Properties: "a\x01b\x02",
	}
}

func sameMessage(a, b StoredMessage) string {
	return cmp.Diff(a, b, cmpopts.EquateComparable(netip.AddrPort{}), cmpopts.EquateEmpty())
}

func TestStoredMessagesAreThoseOfABroker(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want StoredMessage
	}{
		"IPv4": {goldenStored4, goldenMessage("10.1.2.3:43210", "10.0.0.1:10911", 0)},
		"IPv6": {goldenStored6, goldenMessage("[2001:db8::1]:43210", "[2001:db8::2]:10911", 0x30)},
	} {
		t.Run(name, func(t *testing.T) {
			b := annotated(t, tc.text)
			got, size, err := DecodeStored(append(b[:len(b):len(b)], "the next"...))
			if err != nil || size != len(b) {
				t.Fatalf("got size %d, %v; want %d", size, err, len(b))
			}
			if diff := sameMessage(tc.want, got); diff != "" {
				t.Error(diff)
			}
			again := AppendStored([]byte("before"), &tc.want)
			if diff := cmp.Diff(append([]byte("before"), b...), again); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAppendStoredSetsHostFlagsFromTheHosts(t *testing.T) {
	m := goldenMessage("[2001:db8::1]:43210", "10.0.0.1:10911", 0x20|0x4)
	got, _, err := DecodeStored(AppendStored(nil, &m))
	if err != nil || got.SysFlag != 0x10|0x4 || got.BornHost != m.BornHost || got.StoreHost != m.StoreHost {
		t.Errorf("got flag %#x, hosts %v and %v, %v", got.SysFlag, got.BornHost, got.StoreHost, err)
	}
	got, _, err = DecodeStored(AppendStored(nil, &StoredMessage{}))
	if err != nil || got.BornHost != netip.MustParseAddrPort("0.0.0.0:0") {
		t.Errorf("got host %v, %v; want 0.0.0.0:0 for one that is not valid", got.BornHost, err)
	}
}

func TestStoredTopicLengths(t *testing.T) {
	for _, tc := range []struct {
		length int
		magic  byte // its last byte
	}{{0, 0xA7}, {127, 0xA7}, {128, 0xAB}, {255, 0xAB}, {math.MaxInt16, 0xAB}} {
		m := goldenMessage("10.1.2.3:43210", "10.0.0.1:10911", 0)
		m.Topic = strings.Repeat("t", tc.length)
		b := AppendStored(nil, &m)
		got, size, err := DecodeStored(b)
		if err != nil || size != len(b) || got.Topic != m.Topic || got.Properties != m.Properties || b[7] != tc.magic {
			t.Errorf("topic of %d bytes: size %d of %d, topic of %d bytes, magic ..%02X, %v", tc.length, size, len(b), len(got.Topic), b[7], err)
		}
	}
}

func TestAppendStoredLeavesOutWhatDoesNotFit(t *testing.T) {
	for name, change := range map[string]func(*StoredMessage){
		"topic":      func(m *StoredMessage) { m.Topic = strings.Repeat("t", math.MaxInt16+1) },
		"properties": func(m *StoredMessage) { m.Properties = strings.Repeat("p", math.MaxInt16+1) },
		"body":       func(m *StoredMessage) { m.Body = make([]byte, MaxFrame) },
	} {
		m := goldenMessage("10.1.2.3:43210", "10.0.0.1:10911", 0)
		change(&m)
		if got := AppendStored([]byte("x"), &m); string(got) != "x" {
			t.Errorf("%s too long: %d bytes appended", name, len(got)-1)
		}
	}
}

func TestDecodeStoredRefuses(t *testing.T) {
	good := annotated(t, goldenStored4)
	for name, tc := range map[string]struct {
		at     int
		to     []byte
		reason string
	}{
		"size of nothing":           {0, []byte{0, 0, 0, 0}, "record of 0 bytes"},
		"negative size":             {0, []byte{0xFF, 0, 0, 0}, "record of -"},
		"size beyond the bytes":     {3, []byte{0x66}, "record of 102 bytes"},
		"size below the fields":     {3, []byte{0x5C}, "body of 5 bytes: 4 are left"},
		"blank at the log's end":    {4, []byte{0xCB, 0xD4, 0x31, 0x94}, "magic CBD43194"},
		"port too large":            {52, []byte{0, 1, 0, 0}, "born host: port 65536"},
		"negative port":             {68, []byte{0xFF}, "store host: port -"},
		"IPv6 flag on IPv4":         {39, []byte{0x10}, "port"},
		"negative body length":      {84, []byte{0xFF}, "body of -"},
		"body beyond the record":    {87, []byte{0x7F}, "body of 127 bytes"},
		"negative topic length":     {93, []byte{0xFF}, "topic of -1 bytes"},
		"properties beyond the end": {96, []byte{5}, "properties of 5 bytes: 4 are left"},
		"negative properties":       {95, []byte{0xFF}, "properties of -"},
	} {
		t.Run(name, func(t *testing.T) {
			b := append([]byte(nil), good...)
			copy(b[tc.at:], tc.to)
			m, size, err := DecodeStored(b)
			wantFrameError(t, err, tc.reason)
			if size != 0 || m.Topic != "" {
				t.Errorf("got size %d and message %+v with the error", size, m)
			}
		})
	}
	for n := range good {
		if _, size, err := DecodeStored(good[:n]); err == nil || size != 0 {
			t.Errorf("the first %d bytes: size %d, %v", n, size, err)
		}
	}
}

func TestDecodeStoredTellsADamagedBody(t *testing.T) {
	b := annotated(t, goldenStored4)
	b[88] ^= 1
	m, size, err := DecodeStored(b)
	if !errors.Is(err, ErrBodyCRC) || size != len(b) || m.Properties != "a\x01b\x02" {
		t.Errorf("got %+v, size %d, %v", m, size, err)
	}
	b = annotated(t, goldenStored4)
	b[8] |= 0x80 // the top bit does not count
	if _, _, err := DecodeStored(b); err != nil {
		t.Error(err)
	}
}

func drawStored(t *rapid.T) StoredMessage {
	m := StoredMessage{
		Topic:   rapid.StringN(0, -1, 300).Draw(t, "topic"),
		QueueID: rapid.Int32().Draw(t, "queue"), Flag: rapid.Int32().Draw(t, "flag"),
		QueueOffset: rapid.Int64().Draw(t, "queue offset"), PhysicalOffset: rapid.Int64().Draw(t, "physical offset"),
		SysFlag:       rapid.Int32().Draw(t, "system flag") &^ 0x30,
		BornTimestamp: rapid.Int64().Draw(t, "born"), BornHost: drawAddrPort(t, "born host"),
		StoreTimestamp: rapid.Int64().Draw(t, "store"), StoreHost: drawAddrPort(t, "store host"),
		ReconsumeTimes: rapid.Int32().Draw(t, "times"), PreparedTransactionOffset: rapid.Int64().Draw(t, "prepared"),
		Body:       rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "body"),
		Properties: rapid.StringN(0, -1, 300).Draw(t, "properties"),
	}
	if m.BornHost.Addr().Is6() {
		m.SysFlag |= sysFlagBornHost6
	}
	if m.StoreHost.Addr().Is6() {
		m.SysFlag |= sysFlagStoreHost6
	}
	return m
}

func TestStoredMessagesReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(rapid.Custom(drawStored), 1, 4).Draw(t, "messages")
		var b []byte
		for i := range all {
			b = AppendStored(b, &all[i])
		}
		for _, want := range all {
			got, size, err := DecodeStored(b)
			if err != nil {
				t.Fatal(err)
			}
			if diff := sameMessage(want, got); diff != "" {
				t.Fatal(diff)
			}
			b = b[size:]
		}
		if len(b) != 0 {
			t.Fatalf("%d bytes are left", len(b))
		}
	})
}

func TestGoClientReadsStoredMessages(t *testing.T) {
	m := goldenMessage("10.1.2.3:43210", "10.0.0.1:10911", 0)
	got := primitive.DecodeMessage(AppendStored(AppendStored(nil, &m), &m))
	if len(got) != 2 {
		t.Fatalf("got %d messages, want 2", len(got))
	}
	for _, g := range got {
		if g.Topic != "T" || string(g.Body) != "hello" || g.QueueOffset != 42 || g.Queue.QueueId != 3 ||
			g.StoreHost != "10.0.0.1:10911" || g.BornHost != "10.1.2.3:43210" || g.ReconsumeTimes != 2 || g.GetProperty("a") != "b" ||
			g.OffsetMsgId != string(AppendOffsetID(nil, m.StoreHost, m.PhysicalOffset)) {
			t.Errorf("got %+v", g)
		}
	}
}

func FuzzDecodeStored(f *testing.F) {
	f.Add(annotated(f, goldenStored4))
	f.Add(annotated(f, goldenStored6))
	long := goldenMessage("10.1.2.3:43210", "[2001:db8::2]:10911", 0)
	long.Topic = strings.Repeat("t", 128)
	f.Add(AppendStored(nil, &long))
	f.Add(AppendStored(nil, &StoredMessage{}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, size, err := DecodeStored(b)
		if err != nil && !errors.Is(err, ErrBodyCRC) {
			return
		}
		if size < storedFixed || size > len(b) {
			t.Fatalf("size %d of %d bytes", size, len(b))
		}
		again, _, err := DecodeStored(AppendStored(nil, &m))
		if err != nil {
			t.Fatal(err)
		}
		if diff := sameMessage(m, again); diff != "" {
			t.Fatal(diff)
		}
	})
}
