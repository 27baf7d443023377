// Command fencer is an agent that fences test nodes: it asks a server to do so.
//
//	fencer URL
//
// It sends the variables FENCE_* of its environment to the URL (POST, a form), and ends with status 0 if the answer is
// 200, with 1 after any other, and with 2 for wrong arguments. It waits for the answer without a limit of time.
package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: fencer URL")
		os.Exit(2)
	}
	if err := fence(os.Args[1], os.Environ()); err != nil {
		fmt.Fprintln(os.Stderr, "fencer:", err)
		os.Exit(1)
	}
}

var errNotFenced = errors.New("the node is not fenced")

func fence(server string, environment []string) error {
	form := url.Values{}
	for _, variable := range environment {
		if name, value, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "FENCE_") {
			form.Set(name, value)
		}
	}
	answer, err := http.PostForm(server, form)
	if err != nil {
		return err
	}
	if err := answer.Body.Close(); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: %s", errNotFenced, answer.Status)
	}
	return nil
}
