package codec

import "encoding/binary"

// MaxFrame is the size of the largest frame, length word included, that brokers accept
// (frameMaxLength of RocketMQ's NettyDecoder, all versions).
const MaxFrame = 16 << 20

const (
	lengthWord = 4
	headStart  = 8 // length word, serialize type and header length
)

// Serialize is the serialization of a frame's header.
type Serialize byte

// The serialize types.
const (
	JSON   Serialize = 0
	Binary Serialize = 1 // ROCKETMQ
)

// Bits of a header's flag.
const (
	FlagResponse int32 = 1
	FlagOneway   int32 = 2
)

// Language is the client language that a header names.
type Language byte

// Languages with a code of their own.
const (
	LangJava Language = iota
	LangCPP
	LangDotNet
	LangPython
	LangDelphi
	LangErlang
	LangRuby
	LangOther
	LangHTTP
	LangGo
	LangPHP
	LangOMS
	LangRust
	LangNodeJS

	// LangUnknown stands for a name or a number that is none of the above.
	LangUnknown Language = 255
)

var languageNames = [...]string{
	"JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST", "NODE_JS",
}

// String returns the name used in JSON headers, OTHER for an unknown one.
func (l Language) String() string {
	if int(l) < len(languageNames) {
		return languageNames[l]
	}
	return "OTHER"
}

func languageByName(name []byte) Language {
	for i, n := range languageNames {
		if string(name) == n {
			return Language(i)
		}
	}
	return LangUnknown
}

func languageByCode(n int64) Language {
	if n >= 0 && n < int64(len(languageNames)) {
		return Language(n)
	}
	return LangUnknown
}

// Head is what can be told of a frame without looking at its fields or body.
type Head struct {
	Size      int // whole frame in bytes, length word included
	Serialize Serialize
	HeaderLen int // bytes of the header
	Code      int32
	Language  Language
	Version   int32
	Opaque    int32
	Flag      int32
}

// IsResponse reports whether the frame answers a request.
func (h Head) IsResponse() bool { return h.Flag&FlagResponse != 0 }

// IsOneway reports whether the sender of the frame wants no answer.
func (h Head) IsOneway() bool { return h.Flag&FlagOneway != 0 }

// BodyOffset is where the body begins, counted from the start of the frame.
func (h Head) BodyOffset() int { return headStart + h.HeaderLen }

// FrameSize returns the size in bytes, length word included, of the frame that b begins with; 0 while b
// is too short to tell. A length that no frame can have is a *FrameError.
func FrameSize(b []byte) (int, error) {
	if len(b) < lengthWord {
		return 0, nil
	}
	n := binary.BigEndian.Uint32(b)
	if n < lengthWord {
		return 0, frameErr(0, "frame length %d is below 4", n)
	}
	if n > MaxFrame-lengthWord {
		return 0, frameErr(0, "frame length %d is above %d", n, MaxFrame-lengthWord)
	}
	return int(n) + lengthWord, nil
}

// HeaderEnd returns the offset behind the header of the frame that b begins with; 0 while b is too
// short to tell. An unknown serialize type and a header longer than its frame are a *FrameError.
func HeaderEnd(b []byte) (int, error) {
	size, err := FrameSize(b)
	if err != nil {
		return 0, err
	}
	if len(b) < headStart {
		return 0, nil
	}
	if b[4] > byte(Binary) {
		return 0, frameErr(4, "serialize type %d is neither 0 (JSON) nor 1 (ROCKETMQ)", b[4])
	}
	end := headStart + int(binary.BigEndian.Uint32(b[4:])&0xFFFFFF)
	if end > size {
		return 0, frameErr(5, "header length %d exceeds the frame of %d bytes", end-headStart, size)
	}
	return end, nil
}

// ParseHead reads the head of the frame that b begins with; b must reach to the end of the header.
// It allocates nothing but errors and does not look into the fields beyond skipping them.
func ParseHead(b []byte) (Head, error) {
	end, err := HeaderEnd(b)
	if err != nil {
		return Head{}, err
	}
	if end == 0 || len(b) < end {
		return Head{}, frameErr(len(b), "frame ends inside its header")
	}
	size, _ := FrameSize(b)
	h := Head{Size: size, Serialize: Serialize(b[4]), HeaderLen: end - headStart, Language: LangUnknown}
	if h.Serialize == Binary {
		err = binaryHead(b[:end], &h)
	} else {
		err = jsonHead(b[:end], &h)
	}
	return h, err
}

// SetOpaque changes the opaque of a Binary frame in place.
func SetOpaque(frame []byte, opaque int32) error {
	if len(frame) < headStart+binaryFixed {
		return frameErr(len(frame), "frame is too short for a ROCKETMQ header")
	}
	if frame[4] != byte(Binary) {
		return frameErr(4, "the opaque of a frame with serialize type %d cannot be changed in place", frame[4])
	}
	binary.BigEndian.PutUint32(frame[headStart+5:], uint32(opaque))
	return nil
}
