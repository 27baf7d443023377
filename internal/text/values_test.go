package text

import "testing"

func TestCommas(t *testing.T) {
	for json, want := range map[string]int{
		"": 0, "{}": 0, "[{},{},{}]": 2, `{"a":[1,2],"b":3}`: 2, `","`: 0, `["a,\",","b,"]`: 1, `["\\",","]`: 1, `"\`: 0,
	} {
		if got := Commas([]byte(json)); got != want {
			t.Errorf("%s: %d, want %d", json, got, want)
		}
	}
}
