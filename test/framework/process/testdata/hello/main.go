// Command hello is what the tests of process.Build compile.
package main

import "fmt"

func main() { fmt.Println("hello") }
