package codec

import (
	"encoding/hex"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// annotated reads bytes written as hex digits, one field a line; what follows // is a remark.
func annotated(t testing.TB, text string) []byte {
	t.Helper()
	var digits strings.Builder
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "//")
		digits.WriteString(strings.Join(strings.Fields(line), ""))
	}
	b, err := hex.DecodeString(digits.String())
	if err != nil {
		t.Fatalf("annotated bytes: %v", err)
	}
	return b
}

// wantFrameError checks that err is a *FrameError whose reason holds that text.
func wantFrameError(t *testing.T, err error, reason string) {
	t.Helper()
	var fe *FrameError
	if !errors.As(err, &fe) || !strings.Contains(fe.Reason, reason) {
		t.Errorf("got error %v, want a *FrameError with %q", err, reason)
	}
}

func drawAddr(t *rapid.T, label string) netip.Addr {
	size := rapid.SampledFrom([]int{4, 16}).Draw(t, label+" size")
	addr, _ := netip.AddrFromSlice(rapid.SliceOfN(rapid.Byte(), size, size).Draw(t, label))
	return addr
}

func drawAddrPort(t *rapid.T, label string) netip.AddrPort {
	return netip.AddrPortFrom(drawAddr(t, label), rapid.Uint16().Draw(t, label+" port"))
}
