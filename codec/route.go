package codec

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// Route is where the queues of a topic are: the body of a reply to GET_ROUTEINFO_BY_TOPIC (105).
//
//	{"orderTopicConf":"broker-a:4",
//	 "queueDatas":[{"brokerName":"broker-a","readQueueNums":4,"writeQueueNums":4,"perm":6,"topicSysFlag":0}],
//	 "brokerDatas":[{"cluster":"c","brokerName":"broker-a","brokerAddrs":{0:"10.0.0.1:10911"}}],
//	 "filterServerTable":{}}
//
// Name servers write the ids in brokerAddrs without quotes unless a client of version 401 or later asks
// (RocketMQ 4.9.4 and later), or never; both forms are read.
type Route struct {
	OrderTopicConf string // "" if the topic is not an ordered one
	Queues         []QueueData
	Brokers        []BrokerData
}

// QueueData is what one broker name holds of a topic.
type QueueData struct {
	BrokerName     string
	ReadQueueNums  int32
	WriteQueueNums int32
	Perm           int32 // 4 read, 2 write, 1 inherited
	TopicSysFlag   int32
}

// BrokerData lists the brokers of one name: id 0 is the master, others are slaves.
type BrokerData struct {
	Cluster     string
	BrokerName  string
	BrokerAddrs map[int64]string // host:port
}

const filterServerTable = "filterServerTable"

// ParseRoute reads the body of a route reply. Unknown members are skipped; nulls are empty.
func ParseRoute(b []byte) (*Route, error) {
	v, err := parseObject(b, "route")
	if err != nil {
		return nil, err
	}
	r := &Route{OrderTopicConf: v.get("orderTopicConf").str()}
	err = v.get("queueDatas").each(kindArray, "queueDatas", func(m *member) error {
		q, err := parseQueueData(&m.value)
		r.Queues = append(r.Queues, q)
		return err
	})
	if err != nil {
		return nil, err
	}
	err = v.get("brokerDatas").each(kindArray, "brokerDatas", func(m *member) error {
		d, err := parseBrokerData(&m.value)
		r.Brokers = append(r.Brokers, d)
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

func parseQueueData(v *value) (QueueData, error) {
	if v.kind != kindObject {
		return QueueData{}, frameErr(0, "queueDatas: expected an object")
	}
	q := QueueData{BrokerName: v.get("brokerName").str()}
	flag := "topicSysFlag"
	if v.get(flag).kind == kindNull {
		flag = "topicSynFlag" // its name up to 4.8 and in the Go client
	}
	for _, n := range []struct {
		to   *int32
		name string
	}{
		{&q.ReadQueueNums, "readQueueNums"},
		{&q.WriteQueueNums, "writeQueueNums"},
		{&q.Perm, "perm"},
		{&q.TopicSysFlag, flag},
	} {
		var err error
		if *n.to, err = v.get(n.name).int32(n.name); err != nil {
			return QueueData{}, err
		}
	}
	return q, nil
}

func parseBrokerData(v *value) (BrokerData, error) {
	if v.kind != kindObject {
		return BrokerData{}, frameErr(0, "broker data: expected an object")
	}
	d := BrokerData{
		Cluster:     v.get("cluster").str(),
		BrokerName:  v.get("brokerName").str(),
		BrokerAddrs: map[int64]string{},
	}
	err := v.get("brokerAddrs").each(kindObject, "brokerAddrs", func(m *member) error {
		id, err := strconv.ParseInt(m.name, 10, 64)
		if err != nil {
			return frameErr(0, "brokerAddrs: broker id %q is no number", clip([]byte(m.name)))
		}
		if m.value.empty() {
			return nil
		}
		if m.value.kind != kindString {
			return frameErr(0, "brokerAddrs: the address of broker %d is no string", id)
		}
		d.BrokerAddrs[id] = m.value.text
		return nil
	})
	return d, err
}

// Append writes the body in the form that every client reads: no blanks, ids in quotes and ascending,
// filterServerTable empty.
func (r *Route) Append(dst []byte) []byte {
	v := value{kind: kindObject}
	brokers := value{kind: kindArray}
	for i := range r.Brokers {
		brokers.add("", r.Brokers[i].value())
	}
	queues := value{kind: kindArray}
	for i := range r.Queues {
		queues.add("", r.Queues[i].value())
	}
	v.add("brokerDatas", brokers)
	v.add(filterServerTable, value{kind: kindObject})
	if r.OrderTopicConf != "" {
		v.add("orderTopicConf", stringValue(r.OrderTopicConf))
	}
	v.add("queueDatas", queues)
	return v.append(dst)
}

func (q *QueueData) value() value {
	v := value{kind: kindObject}
	v.add("brokerName", stringValue(q.BrokerName))
	v.add("perm", intValue(int64(q.Perm)))
	v.add("readQueueNums", intValue(int64(q.ReadQueueNums)))
	v.add("topicSysFlag", intValue(int64(q.TopicSysFlag)))
	v.add("writeQueueNums", intValue(int64(q.WriteQueueNums)))
	return v
}

func (d *BrokerData) value() value {
	addrs := value{kind: kindObject}
	for _, id := range slices.Sorted(maps.Keys(d.BrokerAddrs)) {
		addrs.add(strconv.FormatInt(id, 10), stringValue(d.BrokerAddrs[id]))
	}
	v := value{kind: kindObject}
	v.add("brokerAddrs", addrs)
	v.add("brokerName", stringValue(d.BrokerName))
	v.add("cluster", stringValue(d.Cluster))
	return v
}

// RewriteRoute maps every broker address of a route reply's body with f and keeps everything else, members
// it does not know included, in their order. What it writes suits every client: no blanks, member names in
// quotes, filterServerTable (which holds addresses and is of no use since RocketMQ 4.3) empty, and
// brokerAddrs always there, since the Go client panics without. Broker ids without address are left out.
// An error of f ends it.
func RewriteRoute(b []byte, f func(addr string) (string, error)) ([]byte, error) {
	v, err := parseObject(b, "route")
	if err != nil {
		return nil, err
	}
	if brokers := v.only("brokerDatas"); brokers != nil {
		err = brokers.each(kindArray, "brokerDatas", func(m *member) error { return rewriteAddrs(&m.value, f) })
		if err != nil {
			return nil, err
		}
	}
	v.set(filterServerTable, value{kind: kindObject})
	return v.append(make([]byte, 0, len(b)+len(b)/4)), nil
}

// rewriteAddrs maps all addresses of a broker data.
func rewriteAddrs(data *value, f func(addr string) (string, error)) error {
	if data.kind != kindObject {
		return frameErr(0, "broker data: expected an object")
	}
	mapped := value{kind: kindObject}
	err := data.get("brokerAddrs").each(kindObject, "brokerAddrs", func(m *member) error {
		if m.value.empty() {
			return nil
		}
		if err := mapAddr(&m.value, f); err != nil {
			return err
		}
		mapped.add(m.name, m.value)
		return nil
	})
	if err != nil {
		return err
	}
	data.set("brokerAddrs", mapped)
	return nil
}

func mapAddr(addr *value, f func(addr string) (string, error)) error {
	if addr.kind != kindString {
		return frameErr(0, "broker address: expected a string")
	}
	to, err := f(addr.text)
	if err != nil {
		return fmt.Errorf("broker address %q: %w", addr.text, err)
	}
	addr.text = to
	return nil
}
