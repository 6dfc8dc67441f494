package codec

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var delayNames = []string{
	PropDelay, PropTimerDeliverMs, PropTimerDelayMs, PropTimerDelaySec, PropTimerOutMs, PropTimerDelUniqKey,
	PropTimerRollTimes, PropTimerEnqueueMs, PropTimerDequeueMs, PropStartDeliverTime,
}

// plainJSONSend is a send without any delay, as Java writes it.
const plainJSONSend = `{"code":310,"extFields":{"a":"pg","b":"orders","c":"TBW102","d":"4","e":"3","f":"0","g":"1700000000123",` +
	`"h":"0","i":"UNIQ_KEY\u0001AC1100012A9F18B4AAC27A1C00000000\u0002WAIT\u0001true\u0002TAGS\u0001A","j":"0","k":"false",` +
	`"m":"false"},"flag":0,"language":"JAVA","opaque":7,"serializeTypeCurrentRPC":"JSON","version":401}`

func TestMayDelayFindsEveryName(t *testing.T) {
	for _, name := range delayNames {
		c := javaSend(JSON)
		c.Fields.Set("i", "A\x01b\x02"+name+"\x013\x02")
		for _, s := range []Serialize{JSON, Binary} {
			c.Serialize = s
			frame, err := c.Append(nil)
			if err != nil {
				t.Fatal(err)
			}
			if !MayDelay(frame) {
				t.Errorf("%s is not found in a header of type %d", name, s)
			}
		}
	}
}

func TestMayDelayIsRarelyWrong(t *testing.T) {
	for _, header := range []string{
		"",
		plainJSONSend,
		`{"extFields":{"i":"KEYS\u0001\u8ba2\u5355\u0002path\u0001C:\\temp\/\b\f\n\r\t\"\u0002"}}`,
		`{"extFields":{"i":"\u003f\u0060\u0061\u00c4\ud83d\ude00"}}`,
		`{"extFields":{"i":"delay\u0001timer_\u0002"}}`,
		"\x00\x01i\x00\x00\x00\x10UNIQ_KEY\x01AC11\x02",
	} {
		if MayDelay([]byte(header)) {
			t.Errorf("%q delays nothing", header)
		}
	}
}

func TestMayDelayDoesNotTrustEscapes(t *testing.T) {
	for _, header := range []string{
		`{"i":"\u0044ELAY"}`,
		`{"i":"DELA\u0059"}`,
		`{"i":"TIMER\u005FOUT\u005fMS"}`,
		`{"i":"__START\u0044ELIVERTIME"}`,
		`{"i":"\u+044ELAY"}`,     // Integer.parseInt takes the sign
		`{"i":"\u００４４ELAY"}`,     // and digits of any script
		`{"i":"\x44ELAY"}`,       // fastjson
		`{"i":"D\ELAY"}`,         // some drop the backslash
		`{"i":"\u0001\u00`,       // cut: cannot tell
		`{"i":"\`,                //
		`{"i":"C:\\\u0044ELAY"}`, // an escaped backslash before
	} {
		if !MayDelay([]byte(header)) {
			t.Errorf("%s may hide a name", header)
		}
	}
}

// A name is found however an encoder escapes its letters.
func TestMayDelayFindsEscapedNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b strings.Builder
		b.WriteString(`{"extFields":{"i":"`)
		write := func(c byte) {
			if rapid.Bool().Draw(t, "escaped") {
				fmt.Fprintf(&b, `\u%04x`, c)
				return
			}
			b.WriteByte(c)
		}
		for _, c := range []byte(rapid.StringMatching(`[a-zA-Z_]{0,8}`).Draw(t, "before") + rapid.SampledFrom(delayNames).Draw(t, "name")) {
			write(c)
		}
		b.WriteString(`\u00013"}}`)
		if !MayDelay([]byte(b.String())) {
			t.Fatalf("no name found in %s", b.String())
		}
	})
}

func FuzzMayDelay(f *testing.F) {
	f.Add(frameOf(JSON, javaJSONSend, "hi"))
	f.Add(frameOf(JSON, plainJSONSend, "hi"))
	f.Add(annotated(f, javaBinarySend))
	f.Add(frameOf(JSON, `{"extFields":{"i":"\u0044ELAY"}}`, ""))
	f.Fuzz(func(t *testing.T, frame []byte) {
		c, err := Decode(frame)
		if err != nil || MayDelay(frame[:len(frame)-len(c.Body)]) {
			return
		}
		for _, field := range c.Fields {
			for _, name := range delayNames {
				if strings.Contains(field.Value, name) {
					t.Fatalf("missed %s in %q", name, frame)
				}
			}
		}
	})
}
