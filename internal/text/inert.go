package text

import (
	"regexp"
	"strings"
	"unicode"
)

// command matches the beginning of a command in a sentence.
var command = regexp.MustCompile(`kubectl[\s\pC\pZ]`)

// Inert returns foreign text that does not look like a command to copy in a sentence, and that does not change the
// direction of the text beside it.
func Inert(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Bidi_Control, r) {
			return '_'
		}
		return r
	}, text)
	return command.ReplaceAllString(text, "kubectl_")
}
