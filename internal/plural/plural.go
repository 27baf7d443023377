// Package plural puts numbers before English nouns and verbs in output for people.
package plural

import "strconv"

// Count formats a number with its noun, as "1 volume" or "2 volumes". It forms the plural with an s.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// Verb returns the form of a verb that fits a number: singular for 1, plural for any other number.
func Verb(n int, singular, plural string) string {
	if n == 1 {
		return singular
	}
	return plural
}
