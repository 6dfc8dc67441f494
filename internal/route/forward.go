package route

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/delaygate/delaygate/codec"
)

// read forwards a request to one name server. Its version, language and fields stay as they are: they decide
// about the form of the JSON, the zone and, where it is signed, about the signature.
func (f *Face) read(ctx context.Context, c *codec.Command, local netip.AddrPort) *codec.Command {
	key := cacheKey(c)
	r, err := f.o.NameServers.Call(ctx, c)
	switch {
	case err != nil:
		stale, ok := f.replies.get(key, f.o.Now().Add(-f.o.StaleFor))
		if !ok {
			f.o.Log.Debug("a request to the name servers was not answered", "code", c.Code, "err", err)
			return refuse(c, codec.RespSystemError, "no name server answers, and no earlier answer to this request is left; try again")
		}
		r = stale
	case r.Code == codec.RespSuccess:
		f.replies.put(key, r, f.o.Now())
	case r.Code == codec.RespTopicNotExist:
		f.replies.drop(key)
	}
	if r.Code != codec.RespSuccess {
		return answer(c, r, nil)
	}
	body, err := f.rewrite(c.Code, r.Body, local)
	if err != nil {
		f.o.Log.Error("an answer of the name servers cannot be passed on", "code", c.Code, "err", err)
		return refuse(c, codec.RespSystemError, "the proxy cannot stand for every broker in this answer, its log says why; try again")
	}
	return answer(c, r, body)
}

// write forwards a request to all name servers. It fails when one of them did not answer, since the change
// is then not everywhere; what such requests change can be changed again without harm.
func (f *Face) write(ctx context.Context, c *codec.Command) *codec.Command {
	replies, err := f.o.NameServers.CallAll(ctx, c)
	var first *codec.Command
	missing := 0
	for _, r := range replies {
		switch {
		case r == nil:
			missing++
		case first == nil, first.Code == codec.RespSuccess && r.Code != codec.RespSuccess:
			first = r
		}
	}
	if first != nil && (missing == 0 || first.Code != codec.RespSuccess) {
		return answer(c, first, first.Body)
	}
	f.o.Log.Warn("a change did not reach every name server", "code", c.Code, "missing", missing, "err", err)
	return refuse(c, codec.RespSystemError,
		fmt.Sprintf("%d of %d name servers did not answer, the others have the change: repeat it when all are up", missing, len(replies)))
}
