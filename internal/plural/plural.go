// Package plural puts numbers before English nouns and verbs, in what people read.
package plural

import "strconv"

// Count returns a number with its noun in English, as "1 volume" or "2 volumes". The plural is the noun with an s.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// Verb returns the one of a verb's two forms that goes with a number: singular with 1, plural with any other.
func Verb(n int, singular, plural string) string {
	if n == 1 {
		return singular
	}
	return plural
}
