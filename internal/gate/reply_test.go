package gate

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/delaygate/delaygate/codec"
	"github.com/delaygate/delaygate/remoting"
	"github.com/delaygate/delaygate/timer"
)

func fieldMap(c *codec.Command) props {
	m := props{}
	for _, f := range c.Fields {
		m[f.Name] = f.Value
	}
	return m
}

func TestTheReplyHasAllThatClientsInsistOn(t *testing.T) {
	for _, binary := range []bool{false, true} {
		w := newWorld(t)
		e, r := w.heldEntry(t, message{binary: binary, queue: 1, props: props{"TIMER_DELAY_MS": "7000", "UNIQ_KEY": "KEY1"}})
		wantType := codec.JSON
		if binary {
			wantType = codec.Binary
		}
		if r.Serialize != wantType || r.Opaque != 77 || r.Flag != codec.FlagResponse || r.Remark != "" || len(r.Body) != 0 {
			t.Errorf("%+v", r)
		}
		lsn := uint64(w.store.lsn)
		want := props{
			"msgId":   fmt.Sprintf("0A010203%08X%016X", 20000, lsn|1<<62), // the listener's port, though the client came by another
			"queueId": "1", "queueOffset": strconv.FormatUint(lsn, 10), "transactionId": "KEY1",
			"recallHandle": base64.URLEncoding.EncodeToString(fmt.Appendf(nil, "v1 orders broker-a %d KEY1 %d.abc", e.Due, lsn)),
			"MSG_REGION":   "DefaultRegion", "TRACE_ON": "true",
		}
		if diff := cmp.Diff(want, fieldMap(r)); diff != "" {
			t.Errorf("fields (-want +got):\n%s", diff)
		}
		if _, offset, err := codec.ParseOffsetID(want["msgId"]); err != nil || offset <= 0 {
			t.Errorf("msgId: offset %d, %v", offset, err)
		}
	}
}

func TestRecallHandles(t *testing.T) {
	w := newWorld(t)
	_, level := w.heldEntry(t, message{props: props{"DELAY": "3"}})
	text, _ := level.Fields.Get("recallHandle")
	if h, err := codec.ParseRecallHandle(text); err != nil || !h.Own || h.LSN != uint64(w.store.lsn) || h.Store != storeIdentity || h.DueMs != nowMs+10_000 {
		t.Errorf("level message: %+v, %v", h, err)
	}
	_, again := w.heldEntry(t, retry(1, 16, 407))
	if _, has := again.Fields.Get("recallHandle"); has {
		t.Error("a retry has a recall handle")
	}
}

func TestTheReplyOverIPv6(t *testing.T) {
	w := newWorld(t)
	w.peer.local = mustAddrPort("[2001:db8::1]:20000")
	_, r := w.heldEntry(t, message{props: props{"DELAY": "3"}})
	id, _ := r.Fields.Get("msgId")
	if at, _, err := codec.ParseOffsetID(id); err != nil || len(id) != 56 || at != mustAddrPort("[2001:db8::1]:20000") {
		t.Errorf("msgId %s: %v %v", id, at, err)
	}
}

func TestTheReplyWaitsForTheDisk(t *testing.T) {
	w := newWorld(t)
	w.store.later = true
	if v := w.send(t, message{props: props{"DELAY": "3"}}); v != remoting.Taken {
		t.Fatal(v)
	}
	w.peer.silent(t)
	w.store.finish(nil)
	if r := w.peer.reply(t); r.Code != codec.RespSuccess {
		t.Errorf("%+v", r)
	}
	if got := w.Stats(); got != (Stats{Held: 1}) {
		t.Errorf("%+v", got)
	}
}

func TestA19OneWaySendsAreHeldWithoutAReply(t *testing.T) {
	w := newWorld(t)
	for _, m := range []message{{props: props{"DELAY": "3"}, oneway: true}, {props: props{"TIMER_DELAY_MS": "x"}, oneway: true}} {
		if v := w.send(t, m); v != remoting.Taken {
			t.Fatal(v)
		}
	}
	w.peer.silent(t)
	if n := len(w.store.all()); n != 1 {
		t.Errorf("%d entries", n)
	}
	if got := w.Stats(); got != (Stats{Held: 1, Refused: 1}) {
		t.Errorf("%+v", got)
	}
}

func TestStoreErrorsTellTheClientWhatToDo(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want int32
	}{
		{timer.ErrBusy, 2},
		{timer.ErrFull, 14},
		{timer.ErrFailed, 14},
		{timer.ErrClosed, 14},
		{fmt.Errorf("too large: %w", timer.ErrTooLarge), 13},
		{errors.New("anything else"), 14},
	} {
		for _, when := range []string{"at once", "from the disk", "later"} {
			w := newWorld(t)
			switch when {
			case "at once":
				w.store.putErr = tc.err
			case "from the disk":
				w.store.doneErr = tc.err
			case "later":
				w.store.later = true
			}
			if v := w.send(t, message{props: props{"DELAY": "3"}}); v != remoting.Taken {
				t.Fatal(v)
			}
			w.store.finish(tc.err)
			r := w.peer.reply(t)
			if r.Code != tc.want || r.Remark == "" || r.Opaque != 77 {
				t.Errorf("%v %s: %d %s", tc.err, when, r.Code, r.Remark)
			}
			w.peer.silent(t)
			if s := w.Stats(); s.Unstored != 1 || s.Held != 0 {
				t.Errorf("%v %s: %+v", tc.err, when, s)
			}
		}
	}
}

func TestRefusalsCarryTheTraceFields(t *testing.T) {
	w := newWorld(t)
	w.send(t, message{props: props{"DELAY": "x"}})
	if diff := cmp.Diff(props{"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}, fieldMap(w.peer.reply(t))); diff != "" {
		t.Error(diff)
	}
}
