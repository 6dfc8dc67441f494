package codec

import "slices"

// maxFields bounds the fields of one header, so that a frame of 16 MiB cannot take many times that.
const maxFields = 1 << 16

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

// Set gives name a single value: in place of the last that is there, else at the end. The slice is
// changed in place.
func (f *Fields) Set(name, value string) {
	set := false
	for i := len(*f) - 1; i >= 0; i-- {
		switch {
		case (*f)[i].Name != name:
		case set:
			*f = slices.Delete(*f, i, i+1)
		default:
			(*f)[i].Value = value
			set = true
		}
	}
	if !set {
		*f = append(*f, Field{name, value})
	}
}

// Del removes every entry called name. The slice is changed in place.
func (f *Fields) Del(name string) {
	*f = slices.DeleteFunc(*f, func(e Field) bool { return e.Name == name })
}
