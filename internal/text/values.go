package text

// Commas counts the commas of a JSON text outside of its strings. Each value but the first of a list or an object
// follows one, so they bound the memory of the decoded text: an empty object in a list takes 3 bytes of text, but
// hundreds of bytes in a typed list.
func Commas(json []byte) (n int) {
	inString := false
	for i := 0; i < len(json); i++ {
		switch json[i] {
		case '"':
			inString = !inString
		case '\\':
			i++ // it occurs only in strings, before a character that ends none
		case ',':
			if !inString {
				n++
			}
		}
	}
	return n
}
