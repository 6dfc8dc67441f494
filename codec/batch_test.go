package codec

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// Written by MessageDecoder.encodeMessages of RocketMQ 5.5.0.
const goldenBatch = `
	00000027           // size
	00000000           // magic
	00000000           // CRC of the body
	00000001           // flag
	00000003 6F6E65    // body: one
	000E               // properties: k=v, WAIT=true
	6B 01 76 02 57414954 01 74727565 02
	00000025
	00000000
	00000000
	FFFFFFFE           // flag -2
	00000005 7468726565
	000A
	57414954 01 74727565 02
`

func goldenBatchMessages() []BatchMessage {
	return []BatchMessage{
		{Flag: 1, Body: []byte("one"), Properties: "k\x01v\x02WAIT\x01true\x02"},
		{Flag: -2, Body: []byte("three"), Properties: "WAIT\x01true\x02"},
	}
}

func TestBatchesAreThoseOfAJavaClient(t *testing.T) {
	b, want := annotated(t, goldenBatch), goldenBatchMessages()
	got, err := DecodeBatch(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	var again []byte
	for _, m := range want {
		again = AppendBatchMessage(again, m)
	}
	if !bytes.Equal(again, b) {
		t.Errorf("got %X, want %X", again, b)
	}
}

func TestBatchesOfTheGoClient(t *testing.T) {
	m := &primitive.Message{Topic: "T", Body: []byte("one"), Flag: 1}
	m.WithProperty("k", "v")
	got, err := DecodeBatch(m.Marshal())
	if err != nil || len(got) != 1 || string(got[0].Body) != "one" || got[0].Flag != 1 {
		t.Fatalf("got %+v, %v", got, err)
	}
	props := ParseProperties(got[0].Properties)
	if v, _ := props.Get("k"); v != "v" {
		t.Errorf("got properties %q", got[0].Properties)
	}
}

func TestEmptyBatchHasNoMessages(t *testing.T) {
	if got, err := DecodeBatch(nil); err != nil || len(got) != 0 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestDecodeBatchRefuses(t *testing.T) {
	good := annotated(t, goldenBatch)
	for name, tc := range map[string]struct {
		at     int
		to     byte
		reason string
	}{
		"size too small":       {3, 0x26, "says it has 38 bytes and has 39"},
		"negative size":        {0, 0xFF, "says it has -"},
		"negative body":        {16, 0xFF, "body of -"},
		"body beyond the end":  {17, 1, "body of 65539 bytes"},
		"negative properties":  {23, 0xFF, "properties of -"},
		"properties too long":  {23, 1, "properties of 270 bytes"},
		"second size differs":  {42, 0x26, "says it has 38 bytes and has 37"},
		"second body too long": {58, 6, "properties of 2647 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			b := bytes.Clone(good)
			b[tc.at] = tc.to
			got, err := DecodeBatch(b)
			wantFrameError(t, err, tc.reason)
			if got != nil {
				t.Errorf("got %+v with the error", got)
			}
		})
	}
	for n := range good {
		if _, err := DecodeBatch(good[:n]); err == nil && n != 0 && n != 0x27 {
			t.Errorf("the first %d bytes: no error", n)
		}
	}
}

func TestAppendBatchMessageLeavesOutWhatDoesNotFit(t *testing.T) {
	for name, m := range map[string]BatchMessage{
		"properties": {Properties: strings.Repeat("p", math.MaxInt16+1)},
		"body":       {Body: make([]byte, MaxFrame)},
	} {
		if got := AppendBatchMessage([]byte("x"), m); string(got) != "x" {
			t.Errorf("%s too long: %d bytes appended", name, len(got)-1)
		}
	}
}

func TestBatchesReadBack(t *testing.T) {
	message := rapid.Custom(func(t *rapid.T) BatchMessage {
		return BatchMessage{
			Flag: rapid.Int32().Draw(t, "flag"), Body: rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "body"),
			Properties: rapid.StringN(0, -1, 200).Draw(t, "properties"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(message, 0, 5).Draw(t, "messages")
		var b []byte
		for _, m := range want {
			b = AppendBatchMessage(b, m)
		}
		got, err := DecodeBatch(b)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatal(diff)
		}
	})
}

func FuzzDecodeBatch(f *testing.F) {
	f.Add(annotated(f, goldenBatch))
	f.Add(AppendBatchMessage(nil, BatchMessage{}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := DecodeBatch(b)
		if err != nil {
			return
		}
		var again []byte
		for _, m := range all {
			again = AppendBatchMessage(again, m)
		}
		if len(again) != len(b) {
			t.Fatalf("%d bytes read as messages of %d", len(b), len(again))
		}
		got, err := DecodeBatch(again)
		if diff := cmp.Diff(all, got); err != nil || diff != "" {
			t.Fatalf("%v %s", err, diff)
		}
	})
}
