package codec

import (
	"encoding/binary"
	"net/netip"
)

// reader takes big-endian fields off bytes. After the first that does not fit, err is set and all are zero.
type reader struct {
	b   []byte
	at  int
	err error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = frameErr(r.at, format, args...)
	}
}

// take returns the next n bytes, aliasing b; what names them in the error.
func (r *reader) take(n int, what string) []byte {
	if r.err != nil {
		return nil
	}
	if n < 0 || n > len(r.b)-r.at {
		r.fail("%s of %d bytes: %d are left", what, n, len(r.b)-r.at)
		return nil
	}
	r.at += n
	return r.b[r.at-n : r.at : r.at]
}

func (r *reader) int16(what string) int16 {
	if b := r.take(2, what); b != nil {
		return int16(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (r *reader) int32(what string) int32 {
	if b := r.take(4, what); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (r *reader) int64(what string) int64 {
	if b := r.take(8, what); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

// host reads an IP of 4 or 16 bytes and a port of 4.
func (r *reader) host(v6 bool, what string) netip.AddrPort {
	size := 4
	if v6 {
		size = 16
	}
	ip, _ := netip.AddrFromSlice(r.take(size, what))
	port := r.int32(what)
	if port < 0 || port > 0xFFFF {
		r.at -= 4
		r.fail("%s: port %d is not in 0 to 65535", what, port)
	}
	if r.err != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(ip, uint16(port))
}

// appendHost writes what host reads. An address that is not valid is written as 0.0.0.0; a zone is lost.
func appendHost(dst []byte, host netip.AddrPort) []byte {
	if isHost6(host) {
		ip := host.Addr().As16()
		dst = append(dst, ip[:]...)
	} else {
		ip := addr4(host.Addr())
		dst = append(dst, ip[:]...)
	}
	return binary.BigEndian.AppendUint32(dst, uint32(host.Port()))
}

// isHost6 tells whether a host takes 16 bytes: IPv4 in IPv6 form does too, so that it reads back the same.
func isHost6(host netip.AddrPort) bool { return host.Addr().Is6() }
