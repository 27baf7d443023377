package suite

import "testing"

func TestDeepTestsRunOnRequest(t *testing.T) {
	for value, want := range map[string]bool{"": false, "1": true} {
		ran := false
		t.Run("DEEP="+value, func(t *testing.T) {
			t.Setenv(deepVariable, value)
			Deep(t, WaitsForClock)
			ran = true
		})
		if ran != want {
			t.Errorf("with %s=%q the test ran: %v", deepVariable, value, ran)
		}
	}
}
