package codec

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// What RocketMQ 4.9.7 and 5.5.0 clients write for the same delayed send, byte for byte.
const javaBinarySend = `
	000000c9 // 201 bytes follow
	01       // ROCKETMQ
	0000c3   // header of 195 bytes
	0136     // code 310
	00       // JAVA
	0191     // version 401
	fffffffb // opaque -5
	00000000 // flag
	00000000 // no remark
	000000ae // fields of 174 bytes
	0001 61 00000002 7067                       // a, producerGroup: pg
	0001 62 00000004 542dc384                   // b, topic: T-Ä
	0001 63 00000006 544257313032               // c, defaultTopic: TBW102
	0001 64 00000001 34                         // d, defaultTopicQueueNums: 4
	0001 65 00000001 33                         // e, queueId: 3
	0001 66 00000001 30                         // f, sysFlag: 0
	0001 67 0000000d 31373030303030303030313233 // g, bornTimestamp: 1700000000123
	0001 68 00000001 37                         // h, flag: 7
	0001 69 00000029                            // i, properties, 41 bytes
	  554e49515f4b4559 01 41433131 02           //   UNIQ_KEY AC11
	  57414954 01 74727565 02                   //   WAIT true
	  44454c4159 01 33 02                       //   DELAY 3
	  54414753 01 71225c74                      //   TAGS q"\t, without the last separator
	0001 6a 00000001 30                         // j, reconsumeTimes: 0
	0001 6b 00000005 66616c7365                 // k, unitMode: false
	0001 6c 00000002 3136                       // l, maxReconsumeTimes: 16
	0001 6d 00000005 66616c7365                 // m, batch: false
	6869                                        // body: hi`

const javaJSONSend = `{"code":310,"extFields":{"a":"pg","b":"T-Ä","c":"TBW102","d":"4","e":"3","f":"0","g":"1700000000123",` +
	`"h":"7","i":"UNIQ_KEY\u0001AC11\u0002WAIT\u0001true\u0002DELAY\u00013\u0002TAGS\u0001q\"\\t","j":"0","k":"false",` +
	`"l":"16","m":"false"},"flag":0,"language":"JAVA","opaque":-5,"serializeTypeCurrentRPC":"JSON","version":401}`

func javaSend(s Serialize) *Command {
	return &Command{
		Serialize: s, Code: ReqSendMessageV2, Language: LangJava, Version: 401, Opaque: -5,
		Fields: Fields{
			{"a", "pg"}, {"b", "T-Ä"}, {"c", "TBW102"}, {"d", "4"}, {"e", "3"}, {"f", "0"}, {"g", "1700000000123"}, {"h", "7"},
			{"i", "UNIQ_KEY\x01AC11\x02WAIT\x01true\x02DELAY\x013\x02TAGS\x01q\"\\t"},
			{"j", "0"}, {"k", "false"}, {"l", "16"}, {"m", "false"},
		},
		Body: []byte("hi"),
	}
}

func TestFramesOfJavaClients(t *testing.T) {
	const remark = "no route info, \"T\"\x01\n\x7f\u2028\U0001F600 tail"
	answer := func(s Serialize) *Command {
		return &Command{Serialize: s, Code: 17, Version: 401, Opaque: math.MaxInt32, Flag: 3, Remark: remark}
	}
	noFields := func(s Serialize) *Command {
		return &Command{Serialize: s, Code: 46, Version: 401, Opaque: 1, Body: []byte{1, 2, 3}}
	}
	for _, tc := range []struct {
		name  string
		frame []byte
		want  *Command
	}{
		{"binary send", annotated(t, javaBinarySend), javaSend(Binary)},
		{"JSON send", frameOf(JSON, javaJSONSend, "hi"), javaSend(JSON)},
		{"binary answer", annotated(t, `
			0000003a 01000036 // 58 bytes follow, ROCKETMQ header of 54
			0011 00 0191      // code 17, JAVA, version 401
			7fffffff          // opaque
			00000003          // flag: response, one-way
			00000021          // remark of 33 bytes
			  6e6f20726f75746520696e666f2c20225422 01 0a 7f e280a8 f09f9880 207461696c
			00000000          // no fields`), answer(Binary)},
		{"JSON answer of 4.9.7", frameOf(JSON, `{"code":17,"flag":3,"language":"JAVA","opaque":2147483647,`+
			`"remark":"no route info, \"T\"\u0001\n\u007F\u2028😀 tail","serializeTypeCurrentRPC":"JSON","version":401}`, ""), answer(JSON)},
		{"JSON answer of 5.5.0", frameOf(JSON, `{"code":17,"flag":3,"language":"JAVA","opaque":2147483647,`+
			`"remark":"no route info, \"T\"\u0001\n`+"\x7f\u2028😀"+` tail","serializeTypeCurrentRPC":"JSON","version":401}`, ""), answer(JSON)},
		{"binary without fields", annotated(t, `
			0000001c 01000015 002e 00 0191 00000001 00000000
			00000000 00000000 // neither remark nor fields
			010203`), noFields(Binary)},
		{"JSON without fields", frameOf(JSON, `{"code":46,"flag":0,"language":"JAVA","opaque":1,"serializeTypeCurrentRPC":"JSON","version":401}`,
			"\x01\x02\x03"), noFields(JSON)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Decode(tc.frame)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			checkHead(t, tc.frame, got)
		})
	}
}

func TestAppendWritesWhatJavaWrites(t *testing.T) {
	for _, tc := range []struct {
		name    string
		command *Command
		want    []byte
	}{
		{"binary", javaSend(Binary), annotated(t, javaBinarySend)},
		{"JSON", javaSend(JSON), frameOf(JSON, javaJSONSend, "hi")},
	} {
		got, err := tc.command.Append([]byte("before"))
		if err != nil || string(got) != "before"+string(tc.want) {
			t.Errorf("%s: got %q, %v; want %q", tc.name, got, err, tc.want)
		}
	}
}

// Real shapes of clients that are not Java.
func TestJSONHeadersOfOtherClients(t *testing.T) {
	send := Fields{{"a", "pg"}, {"b", "T"}, {"d", "4"}, {"e", "3"}, {"g", "1700000000123"}, {"m", "false"}}
	for _, tc := range []struct {
		name, header string
		want         Command
	}{
		{
			"Go", `{"code":10,"language":"GO","version":317,"opaque":7,"flag":0,"remark":"","extFields":{"producerGroup":"pg","properties":"DELAY\u00013\u0002"}}`,
			Command{Code: 10, Language: LangGo, Version: 317, Opaque: 7, Fields: Fields{{"producerGroup", "pg"}, {"properties", "DELAY\x013\x02"}}},
		},
		{
			"Go without fields", `{"code":34,"language":"GO","version":317,"opaque":8,"flag":0,"remark":"","extFields":{}}`,
			Command{Code: 34, Language: LangGo, Version: 317, Opaque: 8},
		},
		{
			"C++: numbers among the fields, empty signature, newline at the end",
			`{"code":310,"extFields":{"AccessKey":"","OnsChannel":"","Signature":"","a":"pg","d":4,"e":3,"g":"1700000000123","m":"false"},` +
				`"flag":0,"language":"CPP","opaque":9,"remark":"","version":333}` + "\n",
			Command{Code: 310, Language: LangCPP, Version: 333, Opaque: 9, Fields: Fields{
				{"AccessKey", ""}, {"OnsChannel", ""}, {"Signature", ""}, {"a", "pg"}, {"d", "4"}, {"e", "3"}, {"g", "1700000000123"}, {"m", "false"},
			}},
		},
		{
			"ali-ons: raw types, no remark", `{"code":310,"language":"JAVA","version":121,"opaque":1,"flag":0,"extFields":{"a":"pg","b":"T","d":4,"e":3,"g":1700000000123,"m":false}}`,
			Command{Code: 310, Language: LangJava, Version: 121, Opaque: 1, Fields: send},
		},
		{
			"nulls", `{"code":105,"extFields":{"topic":"T","x":null},"flag":null,"language":null,"opaque":2,"remark":null,"version":401}`,
			Command{Code: 105, Language: LangUnknown, Version: 401, Opaque: 2, Fields: Fields{{"topic", "T"}}},
		},
		{
			"null fields", `{"code":105,"extFields":null,"opaque":2}`,
			Command{Code: 105, Language: LangUnknown, Opaque: 2},
		},
		{
			"everything quoted, language by number", `{"code":"34","language":9,"version":"317","opaque":"-8","flag":"2"}`,
			Command{Code: 34, Language: LangGo, Version: 317, Opaque: -8, Flag: 2},
		},
		{
			"blanks, escapes in names, names without quotes",
			" {\t\"\\u0063ode\" : 34 ,\r\n flag:1, \"extFields\" : { 0 : \"zero\" , \"t\\u006fpic\":\"T\" } , \"opaque\":\t5 } ",
			Command{Code: 34, Language: LangUnknown, Flag: 1, Opaque: 5, Fields: Fields{{"0", "zero"}, {"topic", "T"}}},
		},
		{
			"a code among the fields and in unknown members is none",
			`{"a":{"code":1,"x":[{"code":2}]},"extFields":{"code":"3","opaque":"4","x":{"code":5}},"code":34,"opaque":6,"b":[[{"code":7}],"code",8]}`,
			Command{Code: 34, Language: LangUnknown, Opaque: 6, Fields: Fields{{"code", "3"}, {"opaque", "4"}, {"x", `{"code":5}`}}},
		},
		{
			"of two codes the last", `{"code":1,"code":2}`,
			Command{Code: 2, Language: LangUnknown},
		},
		{
			"limits", `{"code":200050,"opaque":-2147483648,"flag":2147483647,"language":"KLINGON"}`,
			Command{Code: 200050, Language: LangUnknown, Opaque: math.MinInt32, Flag: math.MaxInt32},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			frame := frameOf(JSON, tc.header, "")
			got, err := Decode(frame)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&tc.want, got); diff != "" {
				t.Error(diff)
			}
			checkHead(t, frame, got)
		})
	}
}

// checkHead checks that ParseHead tells the same as the command decoded from that frame, all of it or
// cut behind the header.
func checkHead(t rapid.TB, frame []byte, c *Command) {
	t.Helper()
	end, _ := HeaderEnd(frame)
	for _, b := range [][]byte{frame, frame[:end]} {
		h, err := ParseHead(b)
		want := c.Head()
		want.Size, want.HeaderLen = len(frame), end-8
		if err != nil || h != want {
			t.Errorf("ParseHead gives %+v, %v; want %+v", h, err, want)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	binary := annotated(t, javaBinarySend)
	patched := func(offset int, bytes ...byte) []byte {
		b := append([]byte(nil), binary...)
		copy(b[offset:], bytes)
		return b
	}
	for _, tc := range []struct {
		name   string
		frame  []byte
		reason string
	}{
		{"nothing", nil, "first 8 bytes"},
		{"cut", binary[:len(binary)-1], "there are 204"},
		{"bytes behind", append(binary[:len(binary):len(binary)], 0), "there are 206"},
		{"JSON empty", frameOf(JSON, "", "x"), "expected '{'"},
		{"JSON array", frameOf(JSON, "[]", ""), "expected '{'"},
		{"JSON cut", frameOf(JSON, `{"code":1`, "}"), "ends before '}'"},
		{"JSON open string", frameOf(JSON, `{"code`, "\":1}"), "string without end"},
		{"JSON open string after an escape", frameOf(JSON, `{"a":"\"`, "\"}"), "string without end"},
		{"JSON string ends in a backslash", frameOf(JSON, `{"a":"\`, "\"}"), "string without end"},
		{"JSON bytes behind", frameOf(JSON, `{} x`, ""), "behind the JSON object"},
		{"JSON no colon", frameOf(JSON, `{"code" 1}`, ""), "expected ':'"},
		{"JSON no value", frameOf(JSON, `{"code":}`, ""), "expected a value"},
		{"JSON no name", frameOf(JSON, `{:1}`, ""), "member's name"},
		{"JSON no comma", frameOf(JSON, `{"code":1 "flag":0}`, ""), "expected ','"},
		{"JSON comma too many", frameOf(JSON, `{"code":1,}`, ""), "before '}'"},
		{"JSON bad word", frameOf(JSON, `{"x":nul}`, ""), "expected a value"},
		{"JSON bad number", frameOf(JSON, `{"x":1.}`, ""), "expected a value"},
		{"JSON deep", frameOf(JSON, `{"x":`+strings.Repeat("[", 70)+strings.Repeat("]", 70)+`}`, ""), "nests deeper"},
		{"code no number", frameOf(JSON, `{"code":"x"}`, ""), "32-bit integer"},
		{"code an object", frameOf(JSON, `{"code":{}}`, ""), "32-bit integer"},
		{"code broken", frameOf(JSON, `{"code":1.5}`, ""), "32-bit integer"},
		{"code too large", frameOf(JSON, `{"code":2147483648}`, ""), "32-bit integer"},
		{"opaque too small", frameOf(JSON, `{"opaque":-2147483649}`, ""), "32-bit integer"},
		{"opaque far too large", frameOf(JSON, `{"opaque":99999999999999999999}`, ""), "32-bit integer"},
		{"fields no object", frameOf(JSON, `{"extFields":[]}`, ""), "extFields is no object"},
		{"too many fields", frameOf(JSON, `{"extFields":{"":""`+strings.Repeat(`,"":""`, maxFields)+`}}`, ""), "more than 65536 fields"},
		{"binary short", frameOf(Binary, string(make([]byte, 20)), "x"), "at least 21 bytes"},
		{"binary remark too long", patched(21, 0, 0, 0, 179), "remark length"},
		{"binary remark negative", patched(21, 255, 255, 255, 255), "remark length"},
		{"binary fields too long", patched(25, 0, 0, 0, 175), "fields length"},
		{"binary fields too short", patched(25, 0, 0, 0, 0), "174 bytes behind"},
		{"binary fields negative", patched(25, 128, 0, 0, 0), "fields length"},
		{"binary name too long", patched(29, 127, 255), "name length"},
		{"binary name negative", patched(29, 255, 255), "name length"},
		{"binary value too long", patched(32, 0, 0, 1, 0), "value length"},
		{"binary value huge", patched(32, 127, 255, 255, 255), "value length"},
		{"binary name length cut", annotated(t, "0000001a 01000016 0136 00 0191 00000001 00000000 00000000 00000001 00"), "name length is cut"},
		{"binary name longer by one", annotated(t, "0000001b 01000017 0136 00 0191 00000001 00000000 00000000 00000002 0001"), "name length 1 exceeds"},
		{"binary value length cut", annotated(t, "0000001e 0100001a 0136 00 0191 00000001 00000000 00000000 00000005 000161 0000"), "value length is cut"},
		{"binary too many fields", frameOf(Binary, string(make([]byte, 17))+"\x00\x06\x00\x06"+string(make([]byte, 6*(maxFields+1))), ""), "more than 65536 fields"},
	} {
		_, err := Decode(tc.frame)
		if err == nil {
			t.Errorf("%s: no error", tc.name)
			continue
		}
		wantFrameError(t, err, tc.reason)
		if _, err := ParseHead(tc.frame); err == nil && strings.HasPrefix(tc.name, "JSON") {
			t.Error("ParseHead takes it")
		}
		if t.Failed() {
			t.Fatalf("that was %q", tc.name)
		}
	}
}

func TestDecodedStringsOutliveTheFrame(t *testing.T) {
	for _, frame := range [][]byte{annotated(t, javaBinarySend), frameOf(JSON, javaJSONSend, "hi")} {
		got, err := Decode(frame)
		if err != nil {
			t.Fatal(err)
		}
		if &got.Body[0] != &frame[len(frame)-2] || cap(got.Body) != 2 {
			t.Error("the body should alias the frame, and nothing behind it")
		}
		clear(frame)
		got.Body = []byte("hi")
		if diff := cmp.Diff(javaSend(got.Serialize), got); diff != "" {
			t.Error(diff)
		}
	}
}

func TestAppendRefuses(t *testing.T) {
	long := strings.Repeat("x", 1<<15)
	for _, tc := range []struct {
		name    string
		command Command
		reason  string
	}{
		{"code above 32767", Command{Serialize: Binary, Code: 32768}, "does not fit"},
		{"code below -32768", Command{Serialize: Binary, Code: -32769}, "does not fit"},
		{"field name", Command{Serialize: Binary, Fields: Fields{{long, ""}}}, "does not fit"},
		{"size", Command{Body: make([]byte, MaxFrame-20)}, "above the limit"},
		{"serialize type", Command{Serialize: 2}, "serialize type 2"},
	} {
		dst := []byte("before")
		got, err := tc.command.Append(dst)
		wantFrameError(t, err, tc.reason)
		if string(got) != "before" {
			t.Errorf("%s: dst became %d bytes", tc.name, len(got))
		}
	}
}

func TestLargestFrame(t *testing.T) {
	c := Command{Serialize: Binary, Body: make([]byte, MaxFrame-8-21)}
	frame, err := c.Append(nil)
	if err != nil || len(frame) != MaxFrame {
		t.Fatalf("got %d bytes, %v", len(frame), err)
	}
	if got, err := Decode(frame); err != nil || len(got.Body) != len(c.Body) {
		t.Errorf("got %v", err)
	}
	c.Body = append(c.Body, 0)
	_, err = c.Append(nil)
	wantFrameError(t, err, "above the limit")
}

func TestReplies(t *testing.T) {
	for _, tc := range []struct {
		serialize Serialize
		code      int32
		want      Serialize
	}{
		{JSON, 0, JSON}, {Binary, 13, Binary}, {JSON, 200050, JSON}, {Binary, 40000, JSON},
	} {
		h := Head{Serialize: tc.serialize, Code: 10, Language: LangGo, Version: 317, Opaque: -3, Flag: 0}
		r := NewReply(h, tc.code, "why")
		want := &Command{Serialize: tc.want, Code: tc.code, Version: 317, Opaque: -3, Flag: FlagResponse, Remark: "why"}
		if diff := cmp.Diff(want, r); diff != "" {
			t.Error(diff)
		}
		frame, err := r.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		checkHead(t, frame, want)
		if tc.want == JSON && !bytes.Contains(frame, []byte(`"extFields":{}`)) {
			t.Errorf("no extFields in %q", frame)
		}
	}
}

// drawCommand draws a command that reads back as it was.
func drawCommand(t *rapid.T, s Serialize) *Command {
	codes := rapid.Int32Range(math.MinInt16, math.MaxInt16)
	if s == JSON {
		codes = rapid.Int32()
	}
	c := &Command{
		Serialize: s,
		Code:      codes.Draw(t, "code"),
		Language:  Language(rapid.IntRange(0, len(languageNames)-1).Draw(t, "language")),
		Version:   rapid.Int32Range(0, math.MaxInt16).Draw(t, "version"),
		Opaque:    rapid.Int32().Draw(t, "opaque"),
		Flag:      rapid.Int32().Draw(t, "flag"),
		Remark:    rapid.String().Draw(t, "remark"),
		Body:      rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "body"),
	}
	for range rapid.IntRange(0, 6).Draw(t, "fields") {
		c.Fields = append(c.Fields, Field{rapid.String().Draw(t, "name"), rapid.String().Draw(t, "value")})
	}
	if len(c.Body) == 0 {
		c.Body = nil
	}
	return c
}

func TestCommandsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCommand(t, rapid.SampledFrom([]Serialize{JSON, Binary}).Draw(t, "serialize"))
		frame, err := c.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decode(frame)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c, got); diff != "" {
			t.Fatal(diff)
		}
		checkHead(t, frame, got)
	})
}

// Whatever Decode takes, ParseHead takes and tells the same, and it can be written and read again.
func FuzzDecode(f *testing.F) {
	f.Add(frameOf(JSON, javaJSONSend, "hi"))
	f.Add(annotated(f, javaBinarySend))
	f.Add(frameOf(JSON, `{"code":"34","extFields":{"a":1,"b":null,"c":{"x":[1,2]},"d":"\ud83d\ude00\u0001\/"},language:9}`+"\n", ""))
	f.Add(frameOf(JSON, `{}`, ""))
	f.Add(frameOf(Binary, string(make([]byte, 21)), ""))
	f.Add(frameOf(JSON, "{\"a\":\"\xff\\uD800\\x\"}", "body"))
	f.Fuzz(func(t *testing.T, frame []byte) {
		c, err := Decode(frame)
		if err != nil {
			return
		}
		checkHead(t, frame, c)
		again, err := c.Append(nil)
		if err != nil {
			t.Fatalf("%+v is not written: %v", c, err)
		}
		got, err := Decode(again)
		if err != nil {
			t.Fatalf("%+v does not read back: %v", c, err)
		}
		if len(got.Fields) != len(c.Fields) || !bytes.Equal(got.Body, c.Body) || got.Code != c.Code || got.Opaque != c.Opaque {
			t.Fatalf("wrote %+v, read %+v", c, got)
		}
	})
}

// ParseHead and the functions before it take any bytes without harm.
func FuzzParseHead(f *testing.F) {
	f.Add([]byte{0, 0, 0, 4, 0, 0, 0, 0})
	f.Add(frameOf(JSON, javaJSONSend, "hi"))
	f.Add(annotated(f, javaBinarySend))
	f.Fuzz(func(t *testing.T, b []byte) {
		size, err := FrameSize(b)
		if err == nil && size != 0 && (size < 8 || size > MaxFrame) {
			t.Fatalf("size %d", size)
		}
		h, err := ParseHead(b)
		if err == nil && (h.Size != size || h.BodyOffset() > size) {
			t.Fatalf("%+v in a frame of %d bytes", h, size)
		}
	})
}
