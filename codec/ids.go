package codec

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
)

// Lengths in hex digits of the two forms of an offset id.
const (
	offsetIDLen4 = 2 * (4 + 4 + 8)
	offsetIDLen6 = 2 * (16 + 4 + 8)
)

const upperHex = "0123456789ABCDEF"

// AppendOffsetID appends the offset id of a message: upper-case hex of the storing broker's IP (4 or 16
// bytes), its port (4 bytes) and the message's physical offset (8 bytes), as brokers put it into msgId of
// a send reply (RocketMQ MessageDecoder, 4.x and 5.x). An IPv4 address in IPv6 form is written as IPv4; an
// address that is not valid, as 0.0.0.0.
func AppendOffsetID(dst []byte, addr netip.AddrPort, offset int64) []byte {
	dst = appendHexAddr(dst, addr.Addr())
	dst = appendHex(dst, uint64(addr.Port()), 4)
	return appendHex(dst, uint64(offset), 8)
}

func appendHexAddr(dst []byte, addr netip.Addr) []byte {
	if addr = addr.Unmap(); addr.Is6() {
		for _, b := range addr.As16() {
			dst = appendHex(dst, uint64(b), 1)
		}
		return dst
	}
	v4 := addr4(addr)
	return appendHex(dst, uint64(binary.BigEndian.Uint32(v4[:])), 4)
}

// addr4 returns the bytes of an IPv4 address; 0.0.0.0 for one that is not valid.
func addr4(addr netip.Addr) [4]byte {
	if !addr.IsValid() {
		return [4]byte{}
	}
	return addr.As4()
}

// appendHex writes the lowest size bytes of v, the highest first.
func appendHex(dst []byte, v uint64, size int) []byte {
	for shift := 8*size - 4; shift >= 0; shift -= 4 {
		dst = append(dst, upperHex[v>>shift&0xF])
	}
	return dst
}

// ParseOffsetID reads an offset id of either length; lower-case digits are accepted. A UNIQ_KEY has the
// same form: most of them fail, since what stands where a port should be is above 65 535, but not all do.
func ParseOffsetID(s string) (netip.AddrPort, int64, error) {
	if len(s) != offsetIDLen4 && len(s) != offsetIDLen6 {
		return netip.AddrPort{}, 0, frameErr(0, "offset id of %d digits: expected %d or %d", len(s), offsetIDLen4, offsetIDLen6)
	}
	var buf [offsetIDLen6 / 2]byte
	n, err := hex.Decode(buf[:], []byte(s))
	if err != nil {
		return netip.AddrPort{}, 0, frameErr(2*n, "offset id: expected hex digits")
	}
	id := buf[:n]
	ip, _ := netip.AddrFromSlice(id[:n-12])
	port := binary.BigEndian.Uint32(id[n-12:])
	if port > 0xFFFF {
		return netip.AddrPort{}, 0, frameErr(2*(n-12), "offset id: port %d is above 65535", port)
	}
	return netip.AddrPortFrom(ip, uint16(port)), int64(binary.BigEndian.Uint64(id[n-8:])), nil
}
