package levels

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestDefaultIsTheBrokersTable(t *testing.T) {
	d := Default()
	if d.String() != defaultText {
		t.Errorf("got %q, want %q", d, defaultText)
	}
	if d.Max() != 18 {
		t.Errorf("got %d levels, want 18", d.Max())
	}
	parsed, err := Parse(defaultText)
	if err != nil || !parsed.Equal(d) {
		t.Errorf("got %v, %v; want the default", parsed, err)
	}
}

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		text string
		want string
	}{
		{"1s", "1s"},
		{"60s 120m 48h 1d", "1m 2h 2d 1d"},
		{"61s 61m 25h 1d", "61s 61m 25h 1d"},
		{"0s 0d", "0s 0s"},
		{"  1s \t 5s\n", "1s 5s"},
		{"106751d", "106751d"},
	} {
		got, err := Parse(tc.text)
		if err != nil || got.String() != tc.want {
			t.Errorf("Parse(%q) = %q, %v; want %q", tc.text, got, err, tc.want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, tc := range []struct{ text, reason string }{
		{"", "no level given"},
		{" \t", "no level given"},
		{"1s 5", `level 2, "5": expected a whole number and a unit`},
		{"s", `level 1, "s": expected a whole number before the unit 's'`},
		{"1.5h", `level 1, "1.5h"`},
		{"-1s", `level 1, "-1s"`},
		{"+1s", `level 1, "+1s"`},
		{"1S", `level 1, "1S"`},
		{"1ms", `level 1, "1ms"`},
		{"1s,5s", `level 1, "1s,5s"`},
		{"1ä", "expected a whole number and a unit"},
		{"106752d", "longer than the 106751d that are possible"},
		{"99999999999999999999s", "expected a whole number"},
	} {
		_, err := Parse(tc.text)
		if err == nil || !strings.Contains(err.Error(), tc.reason) {
			t.Errorf("Parse(%q): got error %v, want one with %q", tc.text, err, tc.reason)
		}
	}
}

func TestDelayClamps(t *testing.T) {
	for _, tc := range []struct {
		level     int
		delay     time.Duration
		effective int
	}{
		{math.MinInt, 0, 0},
		{-1, 0, 0},
		{0, 0, 0},
		{1, time.Second, 1},
		{3, 10 * time.Second, 3},
		{17, time.Hour, 17},
		{18, 2 * time.Hour, 18},
		{19, 2 * time.Hour, 18},
		{math.MaxInt, 2 * time.Hour, 18},
	} {
		if d, n := Default().Delay(tc.level); d != tc.delay || n != tc.effective {
			t.Errorf("Delay(%d) = %v, %d; want %v, %d", tc.level, d, n, tc.delay, tc.effective)
		}
	}
}

func TestZeroTableDelaysNothing(t *testing.T) {
	var none Table
	if d, n := none.Delay(5); d != 0 || n != 0 {
		t.Errorf("Delay(5) = %v, %d; want 0, 0", d, n)
	}
	if n := none.RetryLevel(0); n != 0 {
		t.Errorf("RetryLevel(0) = %d, want 0", n)
	}
	if s := none.String(); s != "" {
		t.Errorf("String() = %q, want nothing", s)
	}
}

func TestRetryLevel(t *testing.T) {
	short, err := Parse("1s 2s")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		table Table
		n     int
		want  int
	}{
		{Default(), -1, 3},
		{Default(), 0, 3},
		{Default(), 1, 4},
		{Default(), 15, 18},
		{Default(), 16, 18},
		{Default(), math.MaxInt, 18},
		{short, 0, 2},
		{short, 7, 2},
	} {
		if got := tc.table.RetryLevel(tc.n); got != tc.want {
			t.Errorf("RetryLevel(%d) of %q = %d, want %d", tc.n, tc.table, got, tc.want)
		}
	}
}

// Sixteen retries take 17 140 s, the sum that RocketMQ's documentation gives as 4 h 45 min 40 s.
func TestSixteenRetriesTakeTheDocumentedTime(t *testing.T) {
	var sum time.Duration
	for n := range 16 {
		d, _ := Default().Delay(Default().RetryLevel(n))
		sum += d
	}
	if sum != 17140*time.Second {
		t.Errorf("got %v, want 4h45m40s", sum)
	}
}

func TestEqual(t *testing.T) {
	minute, _ := Parse("1m 2m")
	seconds, _ := Parse("60s 120s")
	longer, _ := Parse("1m 2m 3m")
	if !minute.Equal(seconds) {
		t.Error("1m 2m and 60s 120s should be equal")
	}
	if minute.Equal(longer) || longer.Equal(minute) {
		t.Error("tables of different length should differ")
	}
}

func TestStringReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seconds := rapid.SliceOfN(rapid.Int64Range(0, math.MaxInt64/int64(time.Second)), 1, 40).Draw(t, "seconds")
		var table Table
		for _, s := range seconds {
			table.delays = append(table.delays, time.Duration(s)*time.Second)
		}
		got, err := Parse(table.String())
		if err != nil || !got.Equal(table) {
			t.Fatalf("Parse(%q) = %q, %v", table, got, err)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{defaultText, "", "1s 5", "106751d", "0s", "1d 1d"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		table, err := Parse(s)
		if err != nil {
			return
		}
		again, err := Parse(table.String())
		if err != nil || !again.Equal(table) {
			t.Fatalf("%q gives %q, which reads as %q, %v", s, table, again, err)
		}
		if d, n := table.Delay(table.Max() + 1); n != table.Max() || d < 0 {
			t.Fatalf("level above the last: %v, %d", d, n)
		}
	})
}
