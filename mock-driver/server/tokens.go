package server

import (
	"encoding/base64"
	"fmt"
	"hash/crc32"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Kinds of lists. A list accepts only its own tokens and tokens for anyList.
const (
	volumeList   = "volumes"
	snapshotList = "snapshots"
	healthList   = "health"
	anyList      = "any"
)

// token returns a token for the page after an id. It is self-contained, so it survives a restart, and has a checksum,
// so that an arbitrary text is not a valid token.
func token(list, after string) string {
	text := list + " " + after
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%08x %s", crc32.ChecksumIEEE([]byte(text)), text))
}

// FirstPageToken returns a token for the first page of any list, equivalent to an empty token.
func FirstPageToken() string { return token(anyList, "") }

// after returns the id in a token, and "" for the empty token. Any token that this driver did not create yields
// Aborted, as the specification requires.
func after(list, t string) (string, error) {
	if t == "" {
		return "", nil
	}
	data, err := base64.RawURLEncoding.DecodeString(t)
	if err == nil {
		_, text, _ := strings.Cut(string(data), " ")
		kind, id, ok := strings.Cut(text, " ")
		// Compare the whole text, because base64 can encode the same bytes in several ways.
		if ok && (kind == list || kind == anyList) && t == token(kind, id) {
			return id, nil
		}
	}
	return "", status.Error(codes.Aborted, "unknown starting_token: begin again without one")
}
