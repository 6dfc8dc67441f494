package codec

import (
	"fmt"
	"strconv"
	"strings"
)

// SendHeader holds the fields of a send request, whichever of the two forms they came in: long names
// (codes 10 and 324) or letters (codes 310, 320 and 325).
type SendHeader struct {
	ProducerGroup         string
	Topic                 string
	DefaultTopic          string
	DefaultTopicQueueNums int32
	QueueID               int32 // below 0: the broker picks one
	SysFlag               int32
	BornTimestamp         int64 // Unix ms
	Flag                  int32
	Properties            string
	ReconsumeTimes        int32 // -1: absent
	MaxReconsumeTimes     int32 // -1: absent
	UnitMode              bool
	Batch                 bool
	BrokerName            string
	// Extra are the fields that are none of the above, in the order of the wire.
	Extra Fields
}

// sendNames are the field names of one form, in the order of their letters.
type sendNames [14]string

var (
	longNames = sendNames{
		"producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp",
		"flag", "properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes", "batch", "bname",
	}
	letters = sendNames{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n"}
)

// mandatory fields are the first ones up to flag.
const mandatory = 8

// ParseSendHeader reads the header of a send request. A missing mandatory field and a number that is
// none are errors that name the field.
func ParseSendHeader(c *Command) (SendHeader, error) {
	var names *sendNames
	switch c.Code {
	case ReqSendMessage, ReqSendReplyMessage:
		names = &longNames
	case ReqSendMessageV2, ReqSendBatchMessage, ReqSendReplyMessageV2:
		names = &letters
	default:
		return SendHeader{}, fmt.Errorf("codec: code %d is no send request", c.Code)
	}
	h := SendHeader{ReconsumeTimes: -1, MaxReconsumeTimes: -1}
	var seen [len(letters)]bool
	for _, f := range c.Fields {
		i := names.index(f.Name)
		if i < 0 {
			h.Extra = append(h.Extra, f)
			continue
		}
		if err := h.set(i, f.Value); err != nil {
			return SendHeader{}, fmt.Errorf("codec: send header: field %s (%s): %w", f.Name, longNames[i], err)
		}
		seen[i] = true
	}
	for i, ok := range seen[:mandatory] {
		if !ok {
			return SendHeader{}, fmt.Errorf("codec: send header: field %s (%s) is missing", names[i], longNames[i])
		}
	}
	return h, nil
}

func (n *sendNames) index(name string) int {
	for i := range n {
		if n[i] == name {
			return i
		}
	}
	return -1
}

func (h *SendHeader) set(i int, v string) (err error) {
	switch i {
	case 0:
		h.ProducerGroup = v
	case 1:
		h.Topic = v
	case 2:
		h.DefaultTopic = v
	case 3:
		h.DefaultTopicQueueNums, err = parse32(v)
	case 4:
		h.QueueID, err = parse32(v)
	case 5:
		h.SysFlag, err = parse32(v)
	case 6:
		h.BornTimestamp, err = strconv.ParseInt(v, 10, 64)
	case 7:
		h.Flag, err = parse32(v)
	case 8:
		h.Properties = v
	case 9:
		h.ReconsumeTimes, err = parse32(v)
	case 10:
		h.UnitMode = strings.EqualFold(v, "true")
	case 11:
		h.MaxReconsumeTimes, err = parse32(v)
	case 12:
		h.Batch = strings.EqualFold(v, "true")
	case 13:
		h.BrokerName = v
	}
	return err
}

func parse32(v string) (int32, error) {
	n, err := strconv.ParseInt(v, 10, 32)
	return int32(n), err
}

// V1 returns the fields with long names, for codes 10 and 324.
func (h *SendHeader) V1() Fields { return h.fields(&longNames) }

// V2 returns the fields with letters, for codes 310, 320 and 325.
func (h *SendHeader) V2() Fields { return h.fields(&letters) }

func (h *SendHeader) fields(n *sendNames) Fields {
	f := make(Fields, 0, len(n)+len(h.Extra))
	add := func(i int, v string) { f = append(f, Field{n[i], v}) }
	num := func(i int, v int64) { add(i, strconv.FormatInt(v, 10)) }
	add(0, h.ProducerGroup)
	add(1, h.Topic)
	add(2, h.DefaultTopic)
	num(3, int64(h.DefaultTopicQueueNums))
	num(4, int64(h.QueueID))
	num(5, int64(h.SysFlag))
	num(6, h.BornTimestamp)
	num(7, int64(h.Flag))
	if h.Properties != "" {
		add(8, h.Properties)
	}
	if h.ReconsumeTimes >= 0 {
		num(9, int64(h.ReconsumeTimes))
	}
	add(10, strconv.FormatBool(h.UnitMode))
	if h.MaxReconsumeTimes >= 0 {
		num(11, int64(h.MaxReconsumeTimes))
	}
	add(12, strconv.FormatBool(h.Batch))
	if h.BrokerName != "" {
		add(13, h.BrokerName)
	}
	return append(f, h.Extra...)
}
