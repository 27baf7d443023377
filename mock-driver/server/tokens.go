package server

import (
	"encoding/base64"
	"fmt"
	"hash/crc32"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Kinds of lists. A token of one list is no token of another.
const (
	volumeList   = "volumes"
	snapshotList = "snapshots"
	healthList   = "health"
	anyList      = "any"
)

// token leads to the page that begins after an id. It holds all it needs, so that it is still good after a restart,
// and a checksum, so that no accident makes a valid one.
func token(list, after string) string {
	text := list + " " + after
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%08x %s", crc32.ChecksumIEEE([]byte(text)), text))
}

// FirstPageToken leads to the first page of any list, which is otherwise had by an empty token.
func FirstPageToken() string { return token(anyList, "") }

// after reads a token. An empty one leads to the first page. The specification wants Aborted for any other that
// this driver did not give out.
func after(list, t string) (string, error) {
	if t == "" {
		return "", nil
	}
	data, err := base64.RawURLEncoding.DecodeString(t)
	if err == nil {
		_, text, _ := strings.Cut(string(data), " ")
		kind, id, ok := strings.Cut(text, " ")
		// Compared as a whole: base64 has several spellings of the same bytes.
		if ok && (kind == list || kind == anyList) && t == token(kind, id) {
			return id, nil
		}
	}
	return "", status.Error(codes.Aborted, "starting_token is not one that this driver gave out: begin again without one")
}
