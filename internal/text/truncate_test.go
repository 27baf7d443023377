package text

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTruncate(t *testing.T) {
	cases := map[string]struct {
		text  string
		limit int
		want  string
	}{
		"a short text stays":              {"abc", 3, "abc"},
		"a long text is cut and marked":   {"abcdefgh", 6, "abc…"},
		"a character is cut off as one":   {"ab€€€", 7, "ab…"},
		"nothing but the mark fits":       {"abcdefgh", 3, "…"},
		"invalid UTF-8 is replaced":       {"a\xffb", 10, "a\uFFFDb"},
		"and counts with its replacement": {"\xff.\xff.\xff", 9, "\uFFFD.…"},
		"nothing":                         {"", 3, ""},
		"a long one of long characters":   {strings.Repeat("世", 1000), 10, "世世…"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := Truncate(c.text, c.limit)
			if got != c.want || len(got) > c.limit || !utf8.ValidString(got) {
				t.Errorf("%q (%d bytes), want %q in at most %d", got, len(got), c.want, c.limit)
			}
		})
	}
}
