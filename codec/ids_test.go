package codec

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"pgregory.net/rapid"
)

// Written by MessageDecoder.createMessageId of RocketMQ 5.5.0 and 4.9.7.
var goldenOffsetIDs = []struct {
	id     string
	addr   string
	offset int64
}{
	{"0A000001" + "00002A9F" + "0000001122334455", "10.0.0.1:10911", 0x1122334455},
	{"20010DB8000000000000000000000002" + "00002A9F" + "0000001122334455", "[2001:db8::2]:10911", 0x1122334455},
}

func TestOffsetIDsAreThoseOfABroker(t *testing.T) {
	for _, tc := range goldenOffsetIDs {
		addr := netip.MustParseAddrPort(tc.addr)
		if got := string(AppendOffsetID([]byte("x"), addr, tc.offset)); got != "x"+tc.id {
			t.Errorf("AppendOffsetID(%v) = %s, want x%s", addr, got, tc.id)
		}
		for _, id := range []string{tc.id, strings.ToLower(tc.id)} {
			got, offset, err := ParseOffsetID(id)
			if err != nil || got != addr || offset != tc.offset {
				t.Errorf("ParseOffsetID(%s) = %v, %d, %v; want %v, %d", id, got, offset, err, addr, tc.offset)
			}
		}
	}
}

func TestOffsetIDOfUnusualAddresses(t *testing.T) {
	for _, tc := range []struct {
		addr netip.AddrPort
		want string
	}{
		{netip.MustParseAddrPort("[::ffff:10.0.0.1]:1"), "0A000001" + "00000001" + "FFFFFFFFFFFFFFFF"},
		{netip.AddrPort{}, "00000000" + "00000000" + "FFFFFFFFFFFFFFFF"},
		{netip.MustParseAddrPort("[fe80::1%eth0]:65535"), "FE800000000000000000000000000001" + "0000FFFF" + "FFFFFFFFFFFFFFFF"},
	} {
		if got := string(AppendOffsetID(nil, tc.addr, -1)); got != tc.want {
			t.Errorf("AppendOffsetID(%v) = %s, want %s", tc.addr, got, tc.want)
		}
	}
}

func TestParseOffsetIDRefuses(t *testing.T) {
	for _, tc := range []struct{ id, reason string }{
		{"", "0 digits"},
		{"0A00000100002A9F000000112233445", "31 digits"},
		{strings.Repeat("0", 40), "40 digits"},
		{"0A00000100002A9F00000011223344XX", "hex"},
		{"0A00000100010000" + "0000001122334455", "port 65536"},
		{"AC1100010001" + "18B4AAC2" + "7DB53F97" + "0001", "port"}, // a UNIQ_KEY
	} {
		_, _, err := ParseOffsetID(tc.id)
		wantFrameError(t, err, tc.reason)
	}
}

func TestOffsetIDReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		addr, offset := drawAddrPort(t, "addr"), rapid.Int64().Draw(t, "offset")
		id := AppendOffsetID(nil, addr, offset)
		got, gotOffset, err := ParseOffsetID(string(id))
		want := netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
		if err != nil || got != want || gotOffset != offset {
			t.Fatalf("%v, %d gives %s, which reads as %v, %d, %v", addr, offset, id, got, gotOffset, err)
		}
	})
}

func TestGoClientReadsOffsetID(t *testing.T) {
	id := AppendOffsetID(nil, netip.MustParseAddrPort("10.0.0.1:30000"), 1<<62|12345)
	got, err := primitive.UnmarshalMsgID(id)
	if err != nil {
		t.Fatal(err)
	}
	if got.Addr != "10.0.0.1" || got.Port != 30000 || got.Offset != 1<<62|12345 {
		t.Errorf("got %+v", got)
	}
}

func FuzzParseOffsetID(f *testing.F) {
	for _, tc := range goldenOffsetIDs {
		f.Add(tc.id)
		f.Add(strings.ToLower(tc.id))
	}
	f.Add("")
	f.Add("AC110001000118B4AAC27DB53F970001")
	f.Fuzz(func(t *testing.T, s string) {
		addr, offset, err := ParseOffsetID(s)
		if err != nil {
			return
		}
		again := string(AppendOffsetID(nil, addr, offset))
		if addr.Addr().Is4In6() {
			return // written as IPv4
		}
		if again != strings.ToUpper(s) {
			t.Fatalf("%s reads as %v, %d, which is written %s", s, addr, offset, again)
		}
	})
}
