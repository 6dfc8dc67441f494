package codec

import (
	"maps"
	"slices"
)

// ClusterInfo is every broker a name server knows: the body of a reply to GET_BROKER_CLUSTER_INFO (106).
//
//	{"brokerAddrTable":{"broker-a":{"cluster":"c","brokerName":"broker-a","brokerAddrs":{0:"10.0.0.1:10911"}}},
//	 "clusterAddrTable":{"c":["broker-a"]}}
//
// Name servers write the ids in brokerAddrs without quotes, whoever asks (RocketMQ 4.x and 5.x).
type ClusterInfo struct {
	Brokers  map[string]BrokerData // by broker name
	Clusters map[string][]string   // broker names by cluster
}

const (
	brokerAddrTable  = "brokerAddrTable"
	clusterAddrTable = "clusterAddrTable"
)

// ParseClusterInfo reads the body of a cluster reply. Unknown members are skipped; nulls are empty. The maps
// are never nil.
func ParseClusterInfo(b []byte) (*ClusterInfo, error) {
	v, err := parseObject(b, "cluster info")
	if err != nil {
		return nil, err
	}
	info := &ClusterInfo{Brokers: map[string]BrokerData{}, Clusters: map[string][]string{}}
	err = v.get(brokerAddrTable).each(kindObject, brokerAddrTable, func(m *member) error {
		d, err := parseBrokerData(&m.value)
		if d.BrokerName == "" {
			d.BrokerName = m.name
		}
		info.Brokers[m.name] = d
		return err
	})
	if err != nil {
		return nil, err
	}
	err = v.get(clusterAddrTable).each(kindObject, clusterAddrTable, func(m *member) error {
		names := []string{}
		err := m.value.each(kindArray, clusterAddrTable, func(name *member) error {
			names = append(names, name.value.str())
			return nil
		})
		info.Clusters[m.name] = names
		return err
	})
	if err != nil {
		return nil, err
	}
	return info, nil
}

// Append writes the body without blanks, names in quotes and ascending.
func (c *ClusterInfo) Append(dst []byte) []byte {
	brokers := value{kind: kindObject}
	for _, name := range slices.Sorted(maps.Keys(c.Brokers)) {
		d := c.Brokers[name]
		brokers.add(name, d.value())
	}
	clusters := value{kind: kindObject}
	for _, name := range slices.Sorted(maps.Keys(c.Clusters)) {
		names := value{kind: kindArray}
		for _, broker := range c.Clusters[name] {
			names.add("", stringValue(broker))
		}
		clusters.add(name, names)
	}
	v := value{kind: kindObject}
	v.add(brokerAddrTable, brokers)
	v.add(clusterAddrTable, clusters)
	return v.append(dst)
}

// RewriteClusterInfo maps every broker address of a cluster reply's body with f and keeps everything else;
// see [RewriteRoute].
func RewriteClusterInfo(b []byte, f func(addr string) (string, error)) ([]byte, error) {
	v, err := parseObject(b, "cluster info")
	if err != nil {
		return nil, err
	}
	if table := v.only(brokerAddrTable); table != nil {
		err = table.each(kindObject, brokerAddrTable, func(m *member) error { return rewriteAddrs(&m.value, f) })
		if err != nil {
			return nil, err
		}
	}
	return v.append(make([]byte, 0, len(b)+len(b)/4)), nil
}

// RewriteMemberGroup does the same for a reply to GET_BROKER_MEMBER_GROUP (901), whose body is
//
//	{"brokerMemberGroup":{"cluster":"c","brokerName":"broker-a","brokerAddrs":{0:"10.0.0.1:10911"}}}
func RewriteMemberGroup(b []byte, f func(addr string) (string, error)) ([]byte, error) {
	v, err := parseObject(b, "member group")
	if err != nil {
		return nil, err
	}
	if group := v.only("brokerMemberGroup"); group != nil && group.kind != kindNull {
		if err := rewriteAddrs(group, f); err != nil {
			return nil, err
		}
	}
	return v.append(make([]byte, 0, len(b)+len(b)/4)), nil
}

// RewriteSystemTopicList does the same for a reply to GET_SYSTEM_TOPIC_LIST_FROM_NS (304), whose body is
//
//	{"brokerAddr":"10.0.0.1:10911","topicList":["SELF_TEST_TOPIC"]}
//
// Java admin clients connect to brokerAddr. It may be absent, null or empty.
func RewriteSystemTopicList(b []byte, f func(addr string) (string, error)) ([]byte, error) {
	v, err := parseObject(b, "system topic list")
	if err != nil {
		return nil, err
	}
	if addr := v.only("brokerAddr"); addr != nil && !addr.empty() {
		if err := mapAddr(addr, f); err != nil {
			return nil, err
		}
	}
	return v.append(make([]byte, 0, len(b)+len(b)/4)), nil
}
