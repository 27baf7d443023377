// Package text keeps foreign text (names, handles, a driver's messages) within the limits of logs, Events and metrics,
// and apart from commands.
package text

import (
	"strings"
	"unicode/utf8"
)

// Truncate returns the text as valid UTF-8 in at most limit bytes, as JSON, protobuf and Prometheus require. It cuts
// between characters, and marks a cut with an ellipsis. limit must be at least 3.
func Truncate(text string, limit int) string {
	const more = "…"
	text = strings.ToValidUTF8(text, string(utf8.RuneError))
	if len(text) <= limit {
		return text
	}
	cut := limit - len(more)
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + more
}
