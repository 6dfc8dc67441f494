package route

import (
	"fmt"

	"github.com/delaygate/delaygate/codec"
)

// rewrite replaces every broker address in the body of a reply to code.
func rewrite(code int32, body []byte, f func(addr string) (string, error)) ([]byte, error) {
	switch code {
	case codec.ReqGetRouteInfoByTopic:
		return codec.RewriteRoute(body, f)
	case codec.ReqGetBrokerClusterInfo:
		return codec.RewriteClusterInfo(body, f)
	case codec.ReqGetBrokerMemberGroup:
		return codec.RewriteMemberGroup(body, f)
	case codec.ReqGetSystemTopicListFromNameServer:
		return codec.RewriteSystemTopicList(body, f)
	}
	return nil, fmt.Errorf("no addresses are known in replies to code %d", code)
}
