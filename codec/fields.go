package codec

// Field is one entry of a header's extFields.
type Field struct{ Name, Value string }

// Fields are a header's extFields in the order of the wire.
type Fields []Field

// Get returns the value of name; of several the last, as a map would.
func (f Fields) Get(name string) (string, bool) {
	for i := len(f) - 1; i >= 0; i-- {
		if f[i].Name == name {
			return f[i].Value, true
		}
	}
	return "", false
}

// Set gives name a value: in place when it is there, else at the end.
func (f *Fields) Set(name, value string) {
	for i := len(*f) - 1; i >= 0; i-- {
		if (*f)[i].Name == name {
			(*f)[i].Value = value
			return
		}
	}
	*f = append(*f, Field{name, value})
}

// Del removes every entry called name.
func (f *Fields) Del(name string) {
	kept := (*f)[:0]
	for _, e := range *f {
		if e.Name != name {
			kept = append(kept, e)
		}
	}
	*f = kept
}
