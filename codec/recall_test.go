package codec

import (
	"encoding/base64"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Written by RecallMessageHandle.HandleV1 of RocketMQ 5.5.0.
const brokersHandle = "djEgVG9waWPDhCBicm9rZXItYSAxNzAwMDAwMDAwMTIzIEFDMTEwMDAxMkE5RjE4QjRBQUMy"

func TestParseRecallHandleOfABroker(t *testing.T) {
	got, err := ParseRecallHandle(brokersHandle)
	want := Recall{Topic: "TopicÄ", Broker: "broker-a", DueMs: 1700000000123, UniqKey: "AC1100012A9F18B4AAC2"}
	if err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

// RocketMQ 5.5.0 reads this handle as topic t, broker b, time 1, key k.
func TestRecallHandleOfOurOwn(t *testing.T) {
	handle := RecallHandle("t", "b", 1, "k", 7, 0x1f)
	if want := "djEgdCBiIDEgayA3LjFm"; handle != want {
		t.Errorf("got %s, want %s", handle, want)
	}
	got, err := ParseRecallHandle(handle)
	want := Recall{Topic: "t", Broker: "b", DueMs: 1, UniqKey: "k", LSN: 7, Store: 0x1f, Own: true}
	if err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

func TestParseRecallHandleForms(t *testing.T) {
	base := Recall{Topic: "t", Broker: "b", DueMs: -1, UniqKey: "k"}
	own := func(lsn, store uint64) Recall {
		r := base
		r.LSN, r.Store, r.Own = lsn, store, true
		return r
	}
	for _, tc := range []struct {
		raw  string
		want Recall
	}{
		{"v1 t b -1 k", base},
		{"v1 t b -1 k 0.0", own(0, 0)},
		{"v1 t b -1 k 18446744073709551615.ffffffffffffffff", own(1<<64-1, 1<<64-1)},
		{"v1 t b -1 k 18446744073709551616.1", base},
		{"v1 t b -1 k 1.10000000000000000", base},
		{"v1 t b -1 k 1", base},
		{"v1 t b -1 k 1.", base},
		{"v1 t b -1 k .1", base},
		{"v1 t b -1 k 1.1.1", base},
		{"v1 t b -1 k x", base},
		{"v1 t b -1 k ", base},
		{"v1 t b -1 k 7 8", base},
	} {
		for _, enc := range []*base64.Encoding{base64.URLEncoding, base64.RawURLEncoding} {
			got, err := ParseRecallHandle(enc.EncodeToString([]byte(tc.raw)))
			if err != nil || got != tc.want {
				t.Errorf("%q: got %+v, %v; want %+v", tc.raw, got, err, tc.want)
			}
		}
	}
}

func TestParseRecallHandleRefuses(t *testing.T) {
	encode := func(s string) string { return base64.URLEncoding.EncodeToString([]byte(s)) }
	for _, tc := range []struct{ handle, reason string }{
		{"", "expected \"v1\""},
		{"!", "expected base64url"},
		{"djEg\ndCBiIDEgayA3", "line breaks"},
		{base64.StdEncoding.EncodeToString([]byte("v1 t\xff\xfe\xff b 1 k")), "expected base64url"},
		{encode("v2 t b 1 k"), "expected \"v1\""},
		{encode("v1 t b 1"), "expected \"v1\""},
		{encode("v1 t b 1 "), "expected \"v1\""},
		{encode("v1 t b soon k"), `time "soon"`},
		{strings.Repeat("A", maxRecallHandle+1), "more than"},
	} {
		_, err := ParseRecallHandle(tc.handle)
		wantFrameError(t, err, tc.reason)
	}
}

func TestRecallHandleNeedsItemsWithoutBlanks(t *testing.T) {
	for _, tc := range [][3]string{{"", "b", "k"}, {"t", "", "k"}, {"t", "b", ""}, {"t x", "b", "k"}, {"t", "b x", "k"}, {"t", "b", "k 1"}, {strings.Repeat("t", maxRecallHandle), "b", "k"}} {
		if got := RecallHandle(tc[0], tc[1], 1, tc[2], 1, 1); got != "" {
			t.Errorf("RecallHandle(%q) = %s, want none", tc, got)
		}
	}
}

func TestRecallHandleReadsBack(t *testing.T) {
	item := rapid.StringN(1, 50, 200).Filter(func(s string) bool { return !strings.Contains(s, " ") })
	rapid.Check(t, func(t *rapid.T) {
		want := Recall{
			Topic: item.Draw(t, "topic"), Broker: item.Draw(t, "broker"), DueMs: rapid.Int64().Draw(t, "due"),
			UniqKey: item.Draw(t, "key"), LSN: rapid.Uint64().Draw(t, "lsn"), Store: rapid.Uint64().Draw(t, "store"), Own: true,
		}
		handle := RecallHandle(want.Topic, want.Broker, want.DueMs, want.UniqKey, want.LSN, want.Store)
		got, err := ParseRecallHandle(handle)
		if err != nil || got != want {
			t.Fatalf("%s reads as %+v, %v; want %+v", handle, got, err, want)
		}
	})
}

func FuzzParseRecallHandle(f *testing.F) {
	f.Add(brokersHandle)
	f.Add(RecallHandle("t", "b", 1, "k", 7, 0x1f))
	f.Add(base64.RawURLEncoding.EncodeToString([]byte("v1 t b 1 k 7 8")))
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRecallHandle(s)
		if err != nil || !r.Own {
			return
		}
		handle := RecallHandle(r.Topic, r.Broker, r.DueMs, r.UniqKey, r.LSN, r.Store)
		if handle == "" {
			return // an item is empty, or numbers had a sign or zeros before them and the handle the longest length
		}
		if again, err := ParseRecallHandle(handle); err != nil || again != r {
			t.Fatalf("%s reads as %+v, which is written %s and reads as %+v, %v", s, r, handle, again, err)
		}
	})
}
