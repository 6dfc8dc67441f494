package codec

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"
)

// frameOf puts the first 8 bytes before a header and adds a body.
func frameOf(serialize Serialize, header string, body string) []byte {
	size := 4 + len(header) + len(body)
	b := []byte{byte(size >> 24), byte(size >> 16), byte(size >> 8), byte(size)}
	b = append(b, byte(serialize), byte(len(header)>>16), byte(len(header)>>8), byte(len(header)))
	return append(append(b, header...), body...)
}

func TestFrameSizeIsKnownFromTheFourthByte(t *testing.T) {
	frame := frameOf(JSON, `{"code":1}`, "body")
	for n := range len(frame) + 1 {
		size, err := FrameSize(frame[:n])
		want := len(frame)
		if n < 4 {
			want = 0
		}
		if size != want || err != nil {
			t.Errorf("%d bytes: got %d, %v; want %d", n, size, err, want)
		}
	}
}

func TestHeaderEndIsKnownFromTheEighthByte(t *testing.T) {
	frame := frameOf(Binary, string(make([]byte, 21)), "body")
	for n := range len(frame) + 1 {
		end, err := HeaderEnd(frame[:n])
		want := 29
		if n < 8 {
			want = 0
		}
		if end != want || err != nil {
			t.Errorf("%d bytes: got %d, %v; want %d", n, end, err, want)
		}
	}
}

func TestFrameSizeLimits(t *testing.T) {
	for _, tc := range []struct {
		bytes  string
		size   int
		reason string
	}{
		{"00000004", 8, ""},
		{"00000000", 0, "below 4"},
		{"00000003", 0, "below 4"},
		{"00FFFFFC", MaxFrame, ""}, // 16 777 212, the largest that brokers take
		{"00FFFFFD", 0, "above 16777212"},
		{"80000000", 0, "above 16777212"},
		{"FFFFFFFF", 0, "above 16777212"},
		{"16030100", 0, "above 16777212"}, // TLS ClientHello
		{"50524F58", 0, "above 16777212"}, // "PROX" of a PROXY preamble
		{"47455420", 0, "above 16777212"}, // "GET "
	} {
		size, err := FrameSize(annotated(t, tc.bytes))
		if tc.reason != "" {
			wantFrameError(t, err, tc.reason)
		} else if err != nil {
			t.Errorf("%s: %v", tc.bytes, err)
		}
		if size != tc.size {
			t.Errorf("%s: got %d, want %d", tc.bytes, size, tc.size)
		}
	}
}

func TestHeaderEndRefuses(t *testing.T) {
	for _, tc := range []struct {
		bytes  string
		offset int
		reason string
	}{
		{"00000003 00000000", 0, "below 4"},
		{"00000020 02000010", 4, "serialize type 2"},
		{"00000020 FF000010", 4, "serialize type 255"},
		{"00000020 0000001D", 5, "exceeds the frame"},
		{"00000004 00000001", 5, "exceeds the frame"},
		{"00000020 01FFFFFF", 5, "exceeds the frame"},
	} {
		_, err := HeaderEnd(annotated(t, tc.bytes))
		wantFrameError(t, err, tc.reason)
		var fe *FrameError
		if errors.As(err, &fe) && fe.Offset != tc.offset {
			t.Errorf("%s: error at byte %d, want %d", tc.bytes, fe.Offset, tc.offset)
		}
	}
}

func TestHeaderMayFillItsFrame(t *testing.T) {
	end, err := HeaderEnd(annotated(t, "00000020 0000001C"))
	if end != 36 || err != nil {
		t.Errorf("got %d, %v; want 36", end, err)
	}
}

func TestParseHeadWantsTheWholeHeader(t *testing.T) {
	for _, frame := range [][]byte{
		frameOf(JSON, `{"code":34,"opaque":9}`, "body"),
		frameOf(Binary, string(make([]byte, 21)), "body"),
	} {
		end, err := HeaderEnd(frame)
		if err != nil {
			t.Fatal(err)
		}
		for n := range len(frame) + 1 {
			h, err := ParseHead(frame[:n])
			if n < end {
				wantFrameError(t, err, "inside its header")
				continue
			}
			if err != nil || h.Size != len(frame) || h.BodyOffset() != end {
				t.Errorf("%d bytes: got %+v, %v", n, h, err)
			}
		}
	}
}

func TestHeadFlags(t *testing.T) {
	for flag, want := range map[int32][2]bool{0: {false, false}, 1: {true, false}, 2: {false, true}, 3: {true, true}, 4: {false, false}} {
		h, c := Head{Flag: flag}, Command{Flag: flag}
		if h.IsResponse() != want[0] || h.IsOneway() != want[1] || c.IsResponse() != want[0] || c.IsOneway() != want[1] {
			t.Errorf("flag %d: response %v, one-way %v", flag, h.IsResponse(), h.IsOneway())
		}
	}
}

func TestLanguageNames(t *testing.T) {
	for l, name := range map[Language]string{
		LangJava: "JAVA", LangCPP: "CPP", LangGo: "GO", LangNodeJS: "NODE_JS", 14: "OTHER", LangUnknown: "OTHER",
	} {
		if got := l.String(); got != name {
			t.Errorf("%d: got %s, want %s", l, got, name)
		}
	}
	if LangGo != 9 || LangNodeJS != 13 {
		t.Errorf("GO is %d and NODE_JS is %d, want 9 and 13", LangGo, LangNodeJS)
	}
}

func TestSetOpaquePatchesInPlace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCommand(t, Binary)
		frame, err := c.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		c.Opaque = rapid.Int32().Draw(t, "new opaque")
		want, _ := c.Append(nil)
		if err := SetOpaque(frame, c.Opaque); err != nil || !bytes.Equal(frame, want) {
			t.Fatalf("got %x, %v; want %x", frame, err, want)
		}
	})
}

func TestSetOpaqueRefuses(t *testing.T) {
	frame := frameOf(JSON, `{"code":34,"opaque":1,"flag":0}`, "")
	before := bytes.Clone(frame)
	wantFrameError(t, SetOpaque(frame, 7), "serialize type 0")
	if !bytes.Equal(frame, before) {
		t.Error("a JSON frame was changed")
	}
	wantFrameError(t, SetOpaque(make([]byte, 28), 7), "too short")
}
