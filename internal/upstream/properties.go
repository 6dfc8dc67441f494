package upstream

import (
	"strconv"
	"strings"
	"unicode/utf16"
)

// parseProperties reads the text form of java.util.Properties: a pair a line, # and ! comments, the key
// ended by =, : or a blank, lines continued by a backslash, and the escapes \t \n \r \f \uXXXX. Brokers
// write key=value lines and escape nothing, so that a backslash of theirs is read as Java clients read it.
func parseProperties(text string) map[string]string {
	m := map[string]string{}
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		line := strings.TrimLeft(lines[i], " \t\f")
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		for continued(line) {
			line = line[:len(line)-1]
			if i+1 == len(lines) {
				break
			}
			i++
			line += strings.TrimLeft(lines[i], " \t\f")
		}
		key, value := splitPair(line)
		m[unescape(key)] = unescape(value)
	}
	return m
}

// continued: the line ends in an odd number of backslashes.
func continued(line string) bool {
	n := len(line) - len(strings.TrimRight(line, `\`))
	return n%2 == 1
}

func splitPair(line string) (key, value string) {
	end := 0
	for end < len(line) && !strings.ContainsRune("=: \t\f", rune(line[end])) {
		if line[end] == '\\' {
			end++
		}
		end++
	}
	end = min(end, len(line))
	rest := strings.TrimLeft(line[end:], " \t\f")
	if rest != "" && (rest[0] == '=' || rest[0] == ':') {
		rest = strings.TrimLeft(rest[1:], " \t\f")
	}
	return line[:end], rest
}

func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	var units []uint16 // of \u escapes in a row, which may be halves of one rune
	flush := func() {
		b.WriteString(string(utf16.Decode(units)))
		units = units[:0]
	}
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			flush()
			b.WriteByte(s[i])
			continue
		}
		i++
		if s[i] == 'u' && i+4 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+5], 16, 16); err == nil {
				units = append(units, uint16(n))
				i += 4
				continue
			}
		}
		flush()
		if j := strings.IndexByte("tnrf", s[i]); j >= 0 {
			b.WriteByte("\t\n\r\f"[j])
			continue
		}
		b.WriteByte(s[i])
	}
	flush()
	return b.String()
}
