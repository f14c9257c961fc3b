"""The methods: one module a paper, one function a method; imported when params.yaml asks for one."""
