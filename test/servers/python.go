package servers

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

//go:embed python.txt
var pythonPackages []byte

// Python returns the path of an interpreter that has fastavro, pyarrow, duckdb (with its avro extension) and psycopg at the versions of
// python.txt.
func Python(ctx context.Context) (interpreter string, err error) {
	python, err := need("the Python readers", "python3", "apt-get install python3 python3-venv")
	if err != nil {
		return "", err
	}
	version, err := exec.CommandContext(ctx, python, "-c", "import platform; print(platform.python_version())").Output()
	if err != nil {
		return "", fmt.Errorf("ask Python for its version: %w", err)
	}
	sum := sha256.Sum256(pythonPackages)
	name := "python-" + strings.TrimSpace(string(version)) + "-" + hex.EncodeToString(sum[:4])
	dir, err := installed(ctx, name, func(ctx context.Context, dir string) error { return makeVenv(ctx, python, dir) })
	return filepath.Join(dir, "bin", "python"), err
}

func makeVenv(ctx context.Context, python, dir string) error {
	if err := runTool(ctx, nil, python, "-m", "venv", dir); err != nil {
		return fmt.Errorf("Python cannot make environments (apt-get install python3-venv): %w", err)
	}
	list := filepath.Join(dir, "python.txt")
	if err := os.WriteFile(list, pythonPackages, 0o644); err != nil {
		return fmt.Errorf("write the list of packages: %w", err)
	}
	own := filepath.Join(dir, "bin", "python")
	if err := runTool(ctx, nil, own, "-m", "pip", "install", "-q", "--no-input", "--disable-pip-version-check", "-r", list); err != nil {
		return err
	}
	// It copies the extension to where DuckDB looks for it, below the home folder: PythonJSON says that this is dir.
	return runTool(ctx, pythonEnv(own), own, "-I", "-c", `import duckdb_extensions as e; e.import_extension("avro")`)
}

// pythonEnv makes the environment's folder the home, so that nothing is read from or left in the user's.
func pythonEnv(interpreter string) []string {
	return []string{"HOME=" + filepath.Dir(filepath.Dir(interpreter)), "PYTHONDONTWRITEBYTECODE=1"}
}

// PythonJSON runs a script with the arguments in sys.argv[1:], gives it the value in as JSON on its standard input (nothing where in is nil), and
// decodes the JSON that it prints into out. In DuckDB, load_extension("avro") works.
func PythonJSON(ctx context.Context, script string, in, out any, args ...string) error {
	interpreter, err := Python(ctx)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, interpreter, append([]string{"-I", "-c", script}, args...)...)
	cmd.Env = append(os.Environ(), pythonEnv(interpreter)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if in != nil {
		input, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encode the script's input: %w", err)
		}
		cmd.Stdin = bytes.NewReader(input)
	}
	stdout, stderr, err := outputs(cmd)
	if err != nil {
		return fmt.Errorf("run a Python script: %w: %s", err, lastLine(stderr))
	}
	if err := json.Unmarshal(stdout, out); err != nil {
		return fmt.Errorf("decode the script's output %.200q: %w", stdout, err)
	}
	return nil
}
