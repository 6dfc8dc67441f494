package codec

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// heads are headers as the event loops see them.
func heads(t testing.TB) map[string][]byte {
	return map[string][]byte{
		"JSON":   frameOf(JSON, plainJSONSend, "body"),
		"binary": annotated(t, javaBinarySend),
		"escapes": frameOf(JSON, `{"\u0063ode":310,"\u0065\u0078\u0074\u0046\u0069\u0065\u006c\u0064\u0073":{"`+
			strings.Repeat(`\u0061`, 80)+`":{"x":[1,null]}},"language":"GO"}`, ""),
	}
}

func TestHotPathDoesNotAllocate(t *testing.T) {
	for name, frame := range heads(t) {
		for what, f := range map[string]func(){
			"FrameSize": func() { _, _ = FrameSize(frame) },
			"HeaderEnd": func() { _, _ = HeaderEnd(frame) },
			"ParseHead": func() {
				if _, err := ParseHead(frame); err != nil {
					t.Error(err)
				}
			},
			"MayDelay": func() { MayDelay(frame) },
		} {
			if n := testing.AllocsPerRun(100, f); n != 0 {
				t.Errorf("%s of %s: %v allocations", what, name, n)
			}
		}
	}
	id, host := make([]byte, 0, 64), netip.MustParseAddrPort("10.0.0.1:10911")
	if n := testing.AllocsPerRun(100, func() { id = AppendOffsetID(id[:0], host, 1) }); n != 0 {
		t.Errorf("AppendOffsetID: %v allocations", n)
	}
}

// The time for a header grows with its length and not with the square of it, whatever it holds: 2 MiB take
// some 20 ms, or half a minute if each escape looks for the end of its string anew.
func TestLongHeadersTakeLinearTime(t *testing.T) {
	for name, unit := range map[string]string{"escapes": `\u0001`, "quotes": `\"`, "backslashes": `\\`} {
		b := []byte(`{"extFields":{"i":"`)
		for len(b) < 2<<20 {
			b = append(b, unit...)
		}
		frame := frameOf(JSON, string(append(b, `"},"code":310}`...)), "")
		start := time.Now()
		h, err := ParseHead(frame)
		if err != nil || h.Code != 310 {
			t.Fatalf("%s: %+v, %v", name, h, err)
		}
		MayDelay(frame)
		if took := time.Since(start); took > 12*time.Second {
			t.Errorf("%s: %v for 2 MiB", name, took)
		}
	}
}

func BenchmarkParseHead(b *testing.B) {
	for name, frame := range heads(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(frame)))
			for b.Loop() {
				_, _ = ParseHead(frame)
			}
		})
	}
}

func BenchmarkMayDelay(b *testing.B) {
	for name, frame := range heads(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(frame)))
			for b.Loop() {
				MayDelay(frame)
			}
		})
	}
}

func BenchmarkDecodeSend(b *testing.B) {
	for name, frame := range heads(b) {
		if name == "escapes" {
			continue
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c, err := Decode(frame)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := ParseSendHeader(c); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAppendSend(b *testing.B) {
	for _, s := range []Serialize{JSON, Binary} {
		b.Run(fmt.Sprintf("type %d", s), func(b *testing.B) {
			b.ReportAllocs()
			c, dst := javaSend(s), []byte(nil)
			for b.Loop() {
				dst, _ = c.Append(dst[:0])
			}
		})
	}
}
